"""Whether noise occurs twice, anywhere in a run or in another run, and whether few seeds make it.

Three kinds of copies, each up to sign:

    stretches   neighbouring numbers that occur again in any message, forwards or backwards, at the same scale or
                (by the ratios of neighbours) at any; nothing but copied noise does that, so it is certain
    messages    a message whose largest numbers are those of another, in any order and at any scale: certain
    values      more equal values over all messages than chance makes: noise from a table

Values are counted as equal where they fall in one of many narrow cells. Of two independent values in one wide
cell, made of `CELLS` narrow ones, 1 in `CELLS` pairs shares the narrow one, whatever the smooth law. Pairs are
uncorrelated and triples of pairs are not, so that the count is held against the gamma law (Pearson's type III) of
its exact mean, variance and skewness. A table of M values adds N^2 / 2 M pairs to N
values, which shows from about M / 30 values on. The narrowest cell follows the digits that rounding left of
nearly all numbers, and each number is spread over the spacing at which it was rounded.

Noise that does not depend on the master seed can be computed by whoever reads the program, and noise of a
generator with a short seed by whoever tries all seeds. `find_seeds` does that for the generator that is at hand
everywhere: torch's Mersenne Twister (Matsumoto, Nishimura. ACM TOMACS 1998), with every seed of 20 bits.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.audit.noise_audit.noise_relations import Largest
from fedaudit.audit.noise_audit.noise_samples import (
    Floats,
    Measured,
    MessageRow,
    NoiseHypothesis,
    Stack,
    build_stacks,
)

Marks = NDArray[np.uint64]
Steps = NDArray[np.int64]
STEP = 2.0**-8  # of the scale: numbers nearer than that look equal in a stretch
BLURS = 32  # steps are wider than the numbers' spacing by so many times
STRAY = 1e-9  # expected stretches that chance repeats
LONGEST = 256  # numbers in a stretch
MOST_MARKS = 1_000_000  # chosen by content, so that copies are chosen alike
EXTREMES = 8  # largest numbers of a message, by which it is known
CELLS = 16
NARROWEST = 2.0**-20
FEWEST_VALUES, MOST_VALUES = 200, 8_000_000
SEED_BITS = 20
BLUR = 1e-5  # of an angle, by rounding


def list_searches(
    rows: Sequence[MessageRow], stacks: Sequence[Stack], other: Sequence[MessageRow], again: Sequence[MessageRow]
) -> Iterator[NoiseHypothesis]:
    """Questions about the noise of all kinds; `other` is of another master seed, `again` under the same."""
    others = build_stacks(other)
    yield NoiseHypothesis(
        "noise used twice",
        "no noise was used a second time",
        "noise was used a second time, so that whoever holds both messages can subtract it",
        partial(count_copies, stacks),
        is_certain=True,
    )
    yield NoiseHypothesis(
        "distinct values of noise",
        "the noise takes as many values as its law allows",
        "the noise takes few values, as from a table, which somebody can have",
        partial(count_values, [*stacks, *others]),
    )
    yield NoiseHypothesis(
        "short seeds",
        f"no seed of {SEED_BITS} bits makes the noise of a message with the usual generator",
        "a seed that anybody can find by trying all makes the noise of a message",
        partial(find_seeds, rows),
        is_certain=True,
    )
    if other:
        yield NoiseHypothesis(
            "noise that anybody can compute",
            "under another master seed all noise is other noise",
            "noise stays what it was under another master seed, so that whoever reads the program computes it",
            partial(compare_seeds, stacks, others),
        )
    if again:
        yield NoiseHypothesis(
            "noise from the run's streams",
            "the same master seed makes the same noise",
            "the same master seed makes other noise, which comes from where the audit does not look",
            partial(count_changes, rows, again),
            is_certain=True,
        )


def list_answer_questions(
    rows: Sequence[MessageRow], other: Sequence[MessageRow]
) -> Iterator[tuple[str, NoiseHypothesis]]:
    """For each kind that is answered at random, whether a coin was tossed; `other` is of another master seed."""
    for kind in sorted({row.key.kind for row in rows}):
        yield (
            kind,
            NoiseHypothesis(
                "answers by a coin",
                "under another master seed answers change as often as the coin that the ledger states makes them",
                "answers stay what they were under another master seed: no coin as the ledger states was tossed",
                partial(compare_answers, [r for r in rows if r.key.kind == kind], other),
            ),
        )


def compare_answers(rows: Sequence[MessageRow], other: Sequence[MessageRow]) -> Measured:
    """How many answers are equal under two master seeds, of as many on either side of two kinds of answers.

    Let a and b be the largest chances of either side, over all that a client may hold. At epsilon the least
    are exp(-epsilon) times that, so a + exp(-epsilon) b <= 1 and the same the other way round, and their mean
    is at most p = 1 / (1 + exp(-epsilon)). Given one play's answers, those of the other are independent, and
    n on each side agree above their mean no more often than 2n tosses of p do (Hoeffding. Annals of
    Mathematical Statistics 1956). Whoever always says the same tells nothing, and is not tried.
    """
    from scipy import stats

    theirs = {row.key: row.output.tobytes() for row in other}
    rows = [row for row in rows if row.key in theirs]
    values = [row.output.tobytes() for row in rows]
    if len({*values}) < 2:
        return None
    codes, counts = np.unique(np.array([v.hex() for v in values]), return_inverse=True, return_counts=True)[1:]
    edge = int(np.argmin(np.abs(np.cumsum(counts) - len(rows) / 2)[:-1]))
    low, high = np.flatnonzero(codes <= edge), np.flatnonzero(codes > edge)
    few = min(len(low), len(high))
    lower = {values[i] for i in low}
    tried = [*low[:few], *high[:few]]
    equal = sum((theirs[rows[i].key] in lower) == (values[i] in lower) for i in tried)
    cost = max(1 / sample.scale for row in rows for sample in row.samples)
    most = float(1 / (1 + np.exp(-cost)))
    chance = float(stats.binom.sf(equal - 1, len(tried), most)) if equal > len(tried) * most + 1 else 1.0
    return chance, f"{equal:,} of {len(tried):,} stay, where a coin keeps {most:.3g} at most, p = {chance:.2g}"


def count_copies(stacks: Sequence[Stack]) -> Measured:
    """Stretches and messages that occur again."""
    looked = copied = 0
    for group in _group_by_spacing(stacks):
        for marks in _mark(group, sum(s.units.size for s in group)):
            chosen = marks[marks % np.uint64(max(1, len(marks) // MOST_MARKS)) == 0]
            looked += len(chosen)
            ordered = np.sort(chosen)
            copied += int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    return (float(copied), f"{copied:,} of {looked:,} stretches and messages occur again") if looked else None


def _group_by_spacing(stacks: Sequence[Stack]) -> list[list[Stack]]:
    """Fine noise of all kinds together, and whole numbers shape by shape."""
    fine = [s for s in stacks if s.is_fine]
    return [*([fine] if fine else []), *([s] for s in stacks if not s.is_fine)]


def _mark(stacks: Sequence[Stack], numbers: int) -> list[Marks]:
    """Marks of stretches, of stretches at any scale, and of messages, long enough for so many numbers."""
    stacks = [s.drop_coarse() for s in stacks]
    if not stacks[0].is_fine:
        whole = _quantise_whole(stacks[0])
        _, counts = np.unique(whole, return_counts=True)
        length = _choose_stretch_length(numbers, float(((counts / counts.sum()) ** 2).sum()))
        return [_mark_series(whole, stacks[0], length)]
    step = max(STEP, BLURS * max(s.grain for s in stacks))
    length = _choose_stretch_length(numbers, step / np.sqrt(np.pi))
    units = [_raise_small(s.units) for s in stacks]
    steps = [np.minimum(np.abs(x) / step, 2.0**40).astype(np.int64) for x in units]
    ratios = [_quantise_ratios(x, step) for x in units]
    return [
        np.concatenate([_mark_series(x, s, length) for x, s in zip(steps, stacks, strict=True)]),
        np.concatenate([_mark_series(x, s, length + 1, True) for x, s in zip(ratios, stacks, strict=True)]),
        np.concatenate([_mark_messages(x, step) for x in units]),
    ]


def _raise_small(units: Floats) -> Floats:
    """Messages with far less noise than declared, which would look alike, at their own scale."""
    spread = np.sqrt((units**2).mean(1, keepdims=True))
    return np.asarray(units / np.where((spread < 0.5) & (spread > 0), spread, 1.0))


def _choose_stretch_length(numbers: int, alike: float) -> int:
    """So many numbers that chance repeats `STRAY` stretches of them; two are equal with chance `alike`."""
    if not 0 < alike < 1:
        return LONGEST + 1
    return int(np.ceil(np.log(max(2.0, numbers**2 / 2) / STRAY) / -np.log(alike)))


def _quantise_whole(stack: Stack) -> Steps:
    """Sizes of whole or coarsely rounded numbers."""
    step = stack.resolution or 1 / stack.scales[:, None]
    return np.asarray(np.round(np.abs(stack.units) / step).astype(np.int64))


def _quantise_ratios(units: Floats, step: float) -> Steps:
    """Logarithms of the ratios of neighbours, which keep no scale."""
    logs = np.log2(np.maximum(np.abs(units), 1e-12))
    return np.floor((logs[:, 1:] - logs[:, :-1]) / step).astype(np.int64)


def _mark_series(steps: Steps, stack: Stack, length: int, are_ratios: bool = False) -> Marks:
    """A mark of every stretch of a sender's numbers, over its messages in their order, whichever way it runs.

    Of numbers in the opposite order, steps of ratios of neighbours are others: -1 - r for each r.
    """
    marks = [np.zeros(0, np.uint64)]
    senders = np.unique(stack.senders, return_inverse=True)[1]
    for sender in range(int(senders.max()) + 1):
        own = np.flatnonzero(senders == sender)
        series = steps[own[np.argsort(stack.times[own], kind="stable")]].ravel()
        if length <= min(LONGEST, len(series)):
            turned = -1 - series[::-1] if are_ratios else series[::-1]
            backwards = _hash_stretches(turned, length)[::-1]
            noisy = np.lib.stride_tricks.sliding_window_view(series != 0, length).any(1)  # no noise is no copy
            marks.append(np.minimum(_hash_stretches(series, length), backwards)[noisy])
    return np.concatenate(marks)


def _hash_stretches(series: Steps, length: int) -> Marks:
    count = len(series) - length + 1
    words = series.astype(np.uint64)
    mark = np.zeros(count, np.uint64)
    for i in range(length):
        mark = (mark + words[i : i + count] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mark ^= mark >> np.uint64(29)
    return mark


def _mark_messages(units: Floats, step: float) -> Marks:
    """A mark of every message with noise, by its largest numbers in units of its length."""
    sizes = np.abs(units[units.any(1)])
    if sizes.shape[1] < 4 * EXTREMES or step > STEP or not len(sizes):
        return np.zeros(0, np.uint64)
    largest = np.sort(sizes / np.sqrt((sizes**2).mean(1, keepdims=True)), axis=1)[:, -EXTREMES:]
    return np.array([_hash_stretches((row / step).astype(np.int64), EXTREMES)[0] for row in largest], np.uint64)


def count_values(stacks: Sequence[Stack]) -> Measured:
    """Pairs of equal values among all numbers; at the scale of their message; and among ratios of neighbours."""
    nested = _nest_by_grain([s for s in stacks if s.is_fine])
    outcomes = [found for level in nested for found in _count_views(level)]
    if not outcomes:
        return None
    chance, found, expected, name = min(outcomes)
    chance = min(1.0, chance * len(outcomes))
    return chance, f"{found:,} pairs of equal {name}, where chance makes {expected:,.0f}, p = {chance:.2g}"


def _nest_by_grain(stacks: Sequence[Stack]) -> list[list[Stack]]:
    """The finest stacks, and these with coarser and coarser ones: coarse numbers hide nothing of another kind."""
    levels = [math.ceil(math.log(max(s.grain, NARROWEST), 4)) for s in stacks]
    return [[s for s, own in zip(stacks, levels, strict=True) if own <= level] for level in sorted({*levels})]


def _count_views(stacks: Sequence[Stack]) -> Iterator[tuple[float, int, float, str]]:
    views: list[tuple[str, list[Floats]]] = [
        ("values", [np.abs(s.smooth_units).ravel() for s in stacks]),
        ("values over the length of their message", [_divide_by_length(s.smooth_units) for s in stacks]),
        ("ratios of neighbours", [_log_ratios(s.smooth_units) for s in stacks]),
    ]
    grain = max(s.grain for s in stacks)
    for (name, values), blurs in zip(views, (1, 1, 20), strict=True):
        width = max(NARROWEST, 2 * BLURS * blurs * grain)
        # density that changes within a wide cell makes pairs too: too few values for that to show
        pooled = np.concatenate(values)[: min(MOST_VALUES, int(0.008 / width**2.5))]
        if len(pooled) >= FEWEST_VALUES:
            yield (*_count_pairs(pooled, width), name)


def _count_pairs(values: Floats, width: float) -> tuple[float, int, float]:
    """The p-value of pairs in narrow cells, given those in wide ones; their number, and what chance makes."""
    from scipy import stats

    narrow = np.floor(values / width).astype(np.int64)
    together, wide = (np.unique(cells, return_counts=True)[1] for cells in (narrow, narrow // CELLS))
    found = int((together * (together - 1) // 2).sum())
    expected, variance, third = compute_moments(wide)
    if not variance:
        return 1.0, found, expected
    beyond = (found - 0.5 - expected) / variance**0.5
    return float(stats.pearson3.sf(beyond, third / variance**1.5)), found, expected


def compute_moments(wide: Steps) -> tuple[float, float, float]:
    """Mean, variance and third central moment of the pairs in narrow cells, of so many values in each wide cell.

    Any two pairs are independent, also those that share a value; of the three pairs of three values two decide
    the third.
    """
    n, p = wide.astype(np.float64), 1 / CELLS
    pairs, triples = float((n * (n - 1) / 2).sum()), float((n * (n - 1) * (n - 2) / 6).sum())
    each = p * (1 - p)
    return pairs * p, pairs * each, pairs * each * (1 - 2 * p) + 6 * triples * p * each


def _divide_by_length(units: Floats) -> Floats:
    if units.shape[1] < 4 * EXTREMES:
        return np.zeros(0)
    lengths = np.sqrt((units**2).mean(1, keepdims=True))
    return np.asarray((np.abs(units) / np.where(lengths > 0, lengths, 1)).ravel())


def _log_ratios(units: Floats) -> Floats:
    sizes = np.abs(units)
    kept = (sizes[:, 1:] > 0.05) & (sizes[:, :-1] > 0.05)
    return np.asarray(np.log(sizes[:, 1:][kept] / sizes[:, :-1][kept]))


def compare_seeds(stacks: Sequence[Stack], others: Sequence[Stack]) -> Measured:
    """Messages under two master seeds: stretches in both; correlations as a whole, by sender and by message."""
    ours, theirs = ([s for s in own if s.is_fine] for own in (stacks, others))
    shared = 0
    if ours and theirs:
        numbers = sum(s.units.size for s in (*ours, *theirs))
        pairs = zip(_mark(ours, numbers), _mark(theirs, numbers), strict=True)
        shared = sum(_count_common(a, b) for a, b in pairs)
    largest, matched = Largest(), 0
    for one, other in _pair_stacks(stacks, others):
        here = {key: i for i, key in enumerate(one.keys)}
        places = np.array([(here[key], i) for i, key in enumerate(other.keys) if key in here])
        matched += len(places)
        if len(places):
            _relate_pairs(one, one.signed[places[:, 0]], other.signed[places[:, 1]], places, largest)
    if not largest.tried and not shared:
        return None
    chance = 0.0 if shared else min(1.0, largest.chance * largest.tried)
    return chance, (
        f"{shared:,} stretches are in both; the largest of {largest.tried:,} correlations of {matched:,} "
        f"messages with those of another seed is {largest.correlation:.3f}, p = {chance:.2g}"
    )


def _count_common(first: NDArray[Any], second: NDArray[Any]) -> int:
    """Values in both, by sorting: numpy's sets of numbers take ten times as long."""
    first, second = np.sort(first), np.sort(second)
    if not len(second):
        return 0
    places = np.minimum(np.searchsorted(second, first), len(second) - 1)
    both = first[second[places] == first]
    return int(len(both) and 1 + np.count_nonzero(both[1:] != both[:-1]))


def _pair_stacks(stacks: Sequence[Stack], others: Sequence[Stack]) -> Iterator[tuple[Stack, Stack]]:
    for one in stacks:
        for other in others:
            if one.kind == other.kind and one.units.shape[1] == other.units.shape[1]:
                yield one, other


def _relate_pairs(stack: Stack, a: Floats, b: Floats, pairs: NDArray[np.int64], largest: Largest) -> None:
    products, ours, theirs = (a * b).sum(1), (a**2).sum(1), (b**2).sum(1)
    senders = np.unique(stack.senders[pairs[:, 0]], return_inverse=True)[1]
    for labels in (np.zeros(len(pairs), np.int64), senders, np.arange(len(pairs))):
        sums = [np.bincount(labels, x) for x in (products, ours, theirs)]
        lengths = np.sqrt(np.maximum(sums[1] * sums[2], 1e-300))
        largest.add(sums[0] / lengths, np.bincount(labels).astype(np.float64) * a.shape[1])


def count_changes(rows: Sequence[MessageRow], again: Sequence[MessageRow]) -> Measured:
    """Numbers that a second play of the same run changed, and messages that only one of them has."""
    ours, theirs = ({row.key: row for row in own} for own in (rows, again))
    missing = len(ours.keys() ^ theirs.keys())
    changed = numbers = 0
    for key in ours.keys() & theirs.keys():
        a, b = ours[key], theirs[key]
        if a.shape != b.shape:
            missing += 1
            continue
        changed += int((a.units != b.units).sum())
        numbers += a.units.size
    return float(
        changed + missing
    ), f"{changed:,} of {numbers:,} numbers differ, and {missing:,} messages are not in both"


def find_seeds(rows: Sequence[MessageRow], bits: int = SEED_BITS) -> Measured:
    """Arrays whose noise, at whatever scale, a generator with a seed below 2^bits makes."""
    large = [s for row in rows for s in row.samples if s.values.size >= 32 and s.line.mechanism == "gaussian"]
    if not large:
        return None
    ordered, order = _draw_first_angles(bits)
    found = 0
    for sample in large:
        angle = (
            float(np.arctan2(sample.units[8], sample.units[0])) % np.pi
        )  # of the pair that Box and Muller make
        low, high = np.searchsorted(ordered, (angle - BLUR, angle + BLUR))
        for seed in order[low:high]:
            rng = torch.Generator().manual_seed(int(seed))
            drawn = torch.randn(sample.values.size, generator=rng).double().numpy()[:32]
            ours = sample.units[:32]
            alike = abs(float(drawn @ ours)) > 0.999 * float(np.linalg.norm(drawn) * np.linalg.norm(ours))
            found += alike
    return float(found), f"{found:,} of {len(large):,} arrays, by {2**bits:,} seeds of torch's generator"


@lru_cache(maxsize=1)
def _draw_first_angles(bits: int) -> tuple[Floats, Steps]:
    """Angles of the first and the ninth number of torch.randn, of 32 or more, in order, and their seeds."""
    kept = {}
    state = np.arange(2**bits, dtype=np.uint32)
    for i in range(406):
        if i:
            state = np.uint32(1812433253) * (state ^ (state >> np.uint32(30))) + np.uint32(i)
        if i in (8, 9, 405):
            kept[i] = state
    turn = _temper(kept[8], kept[9], kept[405])
    angles = 2 * np.pi * turn % np.pi  # whatever the sign
    order = np.argsort(angles)
    return angles[order], order


def _temper(one: NDArray[np.uint32], following: NDArray[np.uint32], far: NDArray[np.uint32]) -> Floats:
    """The twister's next output, as torch makes a number in [0, 1) of it."""
    mixed = (one & np.uint32(0x80000000)) | (following & np.uint32(0x7FFFFFFF))
    y = far ^ (mixed >> np.uint32(1)) ^ np.where(following & np.uint32(1), np.uint32(0x9908B0DF), np.uint32(0))
    y = y ^ (y >> np.uint32(11))
    y = y ^ ((y << np.uint32(7)) & np.uint32(0x9D2C5680))
    y = y ^ ((y << np.uint32(15)) & np.uint32(0xEFC60000))
    y = y ^ (y >> np.uint32(18))
    return np.asarray((y & np.uint32(0xFFFFFF)).astype(np.float64) * 2.0**-24)
