"""Whether noise occurs twice: in one run, or under two master seeds.

Numbers of noise count as equal, up to sign, where they round to the same multiple of a step. A stretch of so many
neighbouring numbers that chance repeats none of them marks noise that was used again: in another round, by
another client, in another array, or in the next row of the same one.

Noise that does not depend on the master seed can be computed by whoever reads the program. Then numbers of the
same message are equal in both plays more often than chance makes them: k of n of them or more with a chance of
at most the binomial tail, since tosses of unlike coins spread less than those of one coin of their mean
(Hoeffding. Annals of Mathematical Statistics 1956).

Recorded uploads hold their noise beside what was trained. Two of them that share it are nearer to each other, or
one to the opposite of the other, than their own noise lets them be.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.noise_audit.noise_samples import (
    Measured,
    MessageRow,
    NoisedUpload,
    NoiseHypothesis,
    NoiseSample,
)

Marks = NDArray[np.uint64]
Steps = NDArray[np.int64]
STEP = 2.0**-8  # of the scale: numbers nearer than that count as equal
BLURS = 16  # steps are wider than what rounding moves a number by so many times
STRAY = 1e-9  # expected stretches that chance repeats
LONGEST = 256  # numbers in a stretch
MOST_NUMBERS = 4_000_000  # that are looked at
MOST_UPLOADS = 160  # that are compared pair by pair
MOST_COMPARED = 4_000_000  # numbers of theirs


def list_searches(rows: Sequence[MessageRow], other: Sequence[MessageRow]) -> Iterator[NoiseHypothesis]:
    """Questions about the noise of all kinds; `other` is of another master seed."""
    yield NoiseHypothesis(
        "noise used twice",
        "no noise was used a second time",
        "noise was used a second time, so that whoever holds both messages can subtract it",
        partial(count_copies, rows),
        is_certain=True,
    )
    if other:
        yield NoiseHypothesis(
            "noise that anybody can compute",
            "under another master seed all noise is other noise",
            "noise stays what it was under another master seed, so that whoever reads the program computes it",
            partial(compare_seeds, rows, other),
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


# Within a run ---------------------------------------------------------------------------------------------


def count_copies(rows: Sequence[MessageRow]) -> Measured:
    """Stretches of noise that occur again."""
    share, looked, copied = _share_looked_at(rows), 0, 0
    groups: dict[float, dict[str, list[Steps]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for sample in row.samples:
            step = choose_step(sample)
            groups[step][row.key.sender].append(_quantise(sample, step, share))
    for by_sender in groups.values():
        series = [np.concatenate(own) for own in by_sender.values()]
        length = choose_length(np.concatenate(series))
        marks = np.sort(np.concatenate([_mark_stretches(own, length) for own in series]))
        looked += len(marks)
        copied += int(np.count_nonzero(marks[1:] == marks[:-1]))
    return (float(copied), f"{copied:,} of {looked:,} stretches of noise occur again") if looked else None


def _share_looked_at(rows: Sequence[MessageRow]) -> float:
    """Of the numbers of each array, of which the first are looked at."""
    return min(1.0, MOST_NUMBERS / max(1, sum(s.values.size for row in rows for s in row.samples)))


def choose_step(sample: NoiseSample) -> float:
    """The step within which numbers count as equal, in units of their scale: whole noise differs by 1."""
    if sample.line.mechanism == "discrete_laplace":
        return 1 / sample.scale
    largest = np.float32(np.abs(sample.output).max())
    spacing = max(float(np.spacing(largest)), sample.line.resolution) / sample.scale
    return float(2.0 ** math.ceil(math.log2(max(STEP, BLURS * spacing))))


def _quantise(sample: NoiseSample, step: float, share: float) -> Steps:
    """Sizes of the first numbers, in steps."""
    kept = sample.units[: math.ceil(share * sample.units.size)]
    return np.minimum(np.round(np.abs(kept) / step), 2.0**40).astype(np.int64)


def choose_length(steps: Steps) -> int:
    """So many numbers that chance repeats `STRAY` stretches of them."""
    counts = np.unique(steps, return_counts=True)[1]
    alike = float(((counts / len(steps)) ** 2).sum())
    if alike >= 1:
        return LONGEST + 1
    return math.ceil(math.log(max(2.0, len(steps) ** 2 / 2) / STRAY) / -math.log(alike))


def _mark_stretches(series: Steps, length: int) -> Marks:
    """A mark of every stretch of a sender's numbers, over its messages in their order; no noise is no copy."""
    count = len(series) - length + 1
    if length > LONGEST or count < 1:
        return np.zeros(0, np.uint64)
    words, marks = series.astype(np.uint64), np.zeros(count, np.uint64)
    for i in range(length):
        marks = (marks + words[i : i + count] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        marks ^= marks >> np.uint64(29)
    noisy = np.lib.stride_tricks.sliding_window_view(series != 0, length).any(1)
    return np.asarray(marks[noisy])


# Under another master seed --------------------------------------------------------------------------------


def compare_seeds(rows: Sequence[MessageRow], other: Sequence[MessageRow]) -> Measured:
    """How many numbers are equal under two master seeds: as a whole, by sender, array and message."""
    from scipy import stats

    share, theirs = _share_looked_at(rows), {row.key: row for row in other}
    arrays: dict[tuple[str, str], list[tuple[MessageRow, Steps, Steps]]] = defaultdict(list)
    for row in rows:
        same = {s.array: s for s in theirs[row.key].samples} if row.key in theirs else {}
        for sample in row.samples:
            twin = same.get(sample.array)
            if twin is not None and twin.values.size == sample.values.size:
                step = max(choose_step(sample), choose_step(twin))
                pair = _quantise(sample, step, share), _quantise(twin, step, share)
                arrays[row.key.kind, sample.array].append((row, *pair))
    parts: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # equal, expected, looked at
    for array, own in arrays.items():
        alike = _chance_of_equals(*(np.concatenate([x[i] for x in own]) for i in (1, 2)))
        for row, ours, twins in own:
            found = float(np.count_nonzero(ours == twins))
            for part in ("", array, row.key.sender, row.key):
                total = parts[part]
                total[0], total[1], total[2] = (
                    total[0] + found,
                    total[1] + alike * len(ours),
                    total[2] + len(ours),
                )
    if not parts:
        return None
    equal, expected, looked = np.array([*parts.values()]).T
    chances = np.where(equal > expected, stats.binom.sf(equal - 1, looked, np.minimum(expected / looked, 1)), 1.0)
    worst = int(np.argmin(chances))
    chance = min(1.0, float(chances[worst]) * len(chances))
    return chance, (
        f"{equal[worst]:,.0f} of {looked[worst]:,.0f} numbers are equal, where chance makes "
        f"{expected[worst]:,.1f}, p = {chance:.2g}"
    )


def _chance_of_equals(first: Steps, second: Steps) -> float:
    """The chance that a number of each is the same, whichever."""
    (ours, some), (theirs, others) = (np.unique(x, return_counts=True) for x in (first, second))
    here, there = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)[1:]
    return float((some[here] * others[there]).sum()) / (len(first) * len(second))


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


# Of a record ---------------------------------------------------------------------------------------------


def measure_distances(uploads: Sequence[NoisedUpload]) -> Measured:
    """The least likely distance of two uploads, and of one from the opposite of the other."""
    from scipy import stats

    shapes = defaultdict[tuple[tuple[str, int], ...], list[NoisedUpload]](list)
    for upload in uploads:
        shapes[tuple((name, len(v)) for name, v in sorted(upload.arrays.items()))].append(upload)
    chances: list[tuple[float, float]] = []
    tried = 0
    for own in shapes.values():
        some = [own[i] for i in spread_out(len(own), MOST_UPLOADS)]
        rows = np.stack([u.values[: MOST_COMPARED // len(some)] for u in some])
        clips = np.array([u.clip for u in some])
        squares, products = (rows**2).sum(1), rows @ rows.T
        one, other = np.triu_indices(len(some), 1)
        for sign in (-1, 1):
            lengths = np.sqrt(np.maximum(squares[one] + squares[other] + 2 * sign * products[one, other], 0))
            longest = lengths + clips[one] + clips[other]
            law = stats.chi2.cdf(longest**2 / 2, rows.shape[1])
            tried += len(law)
            if len(law):
                worst = int(np.argmin(law))
                chances.append((float(law[worst]), float(lengths[worst]) / math.sqrt(2 * rows.shape[1])))
    if not chances:
        return None
    least, share = min(chances)
    chance = min(1.0, least * tried)
    return chance, (
        f"the shortest of {tried:,} sums and differences is {share:.4g} times as long as that of independent "
        f"noise would be alone, p = {chance:.2g}"
    )


def spread_out(many: int, most: int) -> NDArray[np.int64]:
    """Places of at most `most` of `many` things, equally far apart."""
    return np.unique(np.linspace(0, many - 1, min(many, most)).round().astype(np.int64))
