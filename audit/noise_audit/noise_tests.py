"""Tests of the noise that a run drew: its amount, its law, and whether it is fresh and a secret everywhere.

All messages of a run are tested together, kind by kind. Every test is a p-value, corrected for all that it looked
at, and together they fail a run of correct noise with at most the stated chance; what only a copy can cause
fails it never. More noise than declared is no fault.

    amount        the sum of squares of n standard normal scores is chi-squared: the least of all messages,
                  rounds, senders, arrays, numbers and some of their crossings, with Bonferroni's correction
    law           Kolmogorov's distance, as a whole, by round and by sender; the fourth moment; tails by counts
    independence  every lag, every pair of messages, senders, numbers and kinds (noise_relations.py)
    repeats       distinct values, stretches and whole messages, up to sign, order and scale; seeds
                  (noise_repeats.py)

Noise that clients add to a recorded upload stays beside what they trained, u + n, of which the ledger says
|u| <= C. So |n| <= |u + n| + C for every part of a message, and over m messages the root of the sum of squares is
at most that of what was recorded and C sqrt(m): what is too short even so cannot hold the noise. The same is
asked of u + n of two messages added, and subtracted, where noise that they share is gone. Laplace noise is held
against C in the same way by sums of sizes. Neither depends on what was trained.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np
import scipy

from fedaudit.audit.accounting.accountants import prv
from fedaudit.audit.accounting.budget import rounded_down
from fedaudit.audit.accounting.noise_records import find_claim, record_kind
from fedaudit.audit.noise_audit.noise_relations import ask_between_kinds, list_relations, measure_distances
from fedaudit.audit.noise_audit.noise_repeats import list_searches
from fedaudit.audit.noise_audit.noise_samples import (
    Floats,
    Measured,
    MessageRow,
    NoisedUpload,
    NoiseHypothesis,
    NoiseSample,
    Stack,
    build_rows,
    build_stacks,
    list_uploads,
    sample_means,
    standardise,
    summarise_least,
)
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import NoiseAuditRecord, NoiseCheck

MOST_VALUES = 20_000  # of a part, for its law
FEWEST_VALUES = 8
FEWEST_FOURTH = 20_000  # for the fourth moment to be nearly normal
MOST_PARTS = 64  # rounds or senders whose law is tested apart
TAILS = (0.3, 0.2, 0.1, 0.01, 1e-3, 1e-4, 1e-5)  # chances of a number further out
FEWEST_OUTSIDE = 5.0  # expected, for a tail to be tested
DISTINCT = 20_000  # values whose spacing is looked at
CONFIDENCE = 0.975  # of a lower bound
LEAST_DISTINCT = 0.5  # single precision repeats 1 in 2,000 of so many, half precision 9 in 10


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One test of the noise of one kind; `kind` is empty where all kinds were tested together."""

    name: str
    kind: str
    passed: bool
    statistic: float  # the p-value, or the number of copies
    limit: float  # the least p-value that passes, or the most copies
    text: str  # what it means, and then what was measured
    failure_rate: float  # chance that correct noise fails; 0 where it is certain


def run_tests(
    samples: Sequence[NoiseSample],
    other_seed: Sequence[NoiseSample] = (),
    alpha: float = 0.05,
    *,
    same_seed: Sequence[NoiseSample] = (),
) -> list[NoiseTest]:
    """Run every test on all the noise of a run.

    Parameters
    ----------
    samples : sequence of NoiseSample
        All the noise that the run drew, in the order in which it was drawn.
    other_seed : sequence of NoiseSample
        The noise of the same run under another master seed, on the same values where that is possible.
        Without it nothing is said of noise that does not depend on the seed.
    alpha : float
        The chance that any of the tests fails a run whose noise is what the ledger says.
    same_seed : sequence of NoiseSample
        The noise of the same run, played once more.

    Returns
    -------
    list of NoiseTest
        The failure rates add up to at most `alpha`.
    """
    rows = build_rows(samples)
    if not rows:
        return []
    return answer_all([*_list_questions(rows, build_rows(other_seed), build_rows(same_seed))], alpha)


def answer_all(questions: Sequence[tuple[str, NoiseHypothesis]], alpha: float) -> list[NoiseTest]:
    """Tests of (kind, question), which together fail correct noise with a chance of at most `alpha`."""
    each = alpha / max(1, sum(not q.is_certain for _, q in questions))
    return [_answer(kind, question, each) for kind, question in questions]


def _answer(kind: str, question: NoiseHypothesis, alpha: float) -> NoiseTest:
    measured = question.measure()
    nothing = 0.0 if question.is_certain else 1.0
    statistic, how = measured or (nothing, "not tried: there is too little noise")
    passed = statistic == 0 if question.is_certain else statistic >= alpha
    return NoiseTest(
        name=question.name,
        kind=kind,
        passed=passed,
        statistic=statistic,
        limit=0.0 if question.is_certain else alpha,
        text=f"{question.good if passed else question.bad} ({how})" if measured else how,
        failure_rate=0.0 if question.is_certain or not measured else alpha,
    )


def run_recorded_tests(
    recorded: Sequence[Artifact], releases: Sequence[Release], protections: Sequence[Protection], alpha: float
) -> tuple[list[NoiseTest], set[str]]:
    """Tests of the noise in recorded means and uploads, and the kinds that were tested.

    Noise as the ledger states it fails with a chance of at most `alpha`.
    """
    samples, uploads = sample_means(recorded, releases), list_uploads(recorded, releases, protections)
    tests = run_tests(samples, (), alpha / 2) if samples else []
    tests += answer_all(list(_list_upload_questions(uploads)), alpha / 2)
    return tests, {s.line.kind for s in samples} | {u.line.kind for u in uploads}


def _list_questions(
    rows: list[MessageRow], other: list[MessageRow], again: list[MessageRow]
) -> Iterator[tuple[str, NoiseHypothesis]]:
    kinds: dict[str, list[MessageRow]] = defaultdict(list)
    for row in rows:
        kinds[row.key.kind].append(row)
    stacks = {kind: build_stacks(own) for kind, own in kinds.items()}
    every = [s for own in stacks.values() for s in own]
    for kind, own in kinds.items():
        for question in (*_list_laws(own, stacks[kind]), *list_relations(stacks[kind])):
            yield kind, question
    if len(kinds) > 1:
        yield "", ask_between_kinds(every)
    for question in list_searches(rows, every, other, again):
        yield "", question


def _list_upload_questions(uploads: Sequence[NoisedUpload]) -> Iterator[tuple[str, NoiseHypothesis]]:
    ordered = sorted(uploads, key=lambda u: (u.line.kind, u.line.mechanism))
    for (kind, mechanism), group in groupby(ordered, key=lambda u: (u.line.kind, u.line.mechanism)):
        own = list(group)
        yield (
            kind,
            NoiseHypothesis(
                "amount of noise in uploads",
                "every part of the recorded uploads is long enough to hold the noise that the ledger states",
                "a part of the recorded uploads is too short to hold the noise that the ledger states",
                partial(measure_room, own),
            ),
        )
        if mechanism == "gaussian":
            yield (
                kind,
                NoiseHypothesis(
                    "independence of uploads",
                    "no two recorded uploads are nearer to each other than their own noise lets them be",
                    "two recorded uploads, or one and the opposite of another, are nearer than their own "
                    "noise would let them be: they share noise",
                    partial(measure_distances, own),
                ),
            )


def _list_laws(rows: Sequence[MessageRow], stacks: Sequence[Stack]) -> Iterator[NoiseHypothesis]:
    yield NoiseHypothesis(
        "amount of noise",
        "every part of the messages got at least the noise that the ledger states",
        "a part of the messages got less noise than the ledger states",
        partial(measure_amount, rows, stacks),
    )
    yield NoiseHypothesis(
        "law of the noise",
        "the noise has the probability law that the ledger names",
        "the noise has another law than the ledger names, so that the stated limit is that of other noise",
        partial(measure_law, stacks),
    )
    yield NoiseHypothesis(
        "tails of the noise",
        "large noise is as frequent as the law that the ledger names makes it",
        "large noise is more or less frequent than the law that the ledger names makes it",
        partial(measure_tails, stacks),
    )
    yield NoiseHypothesis(
        "precision of the noise",
        "the noise is not carried in so few digits that its spacing could give the message away",
        "the noise is carried in so few digits that its spacing can give the message away",
        partial(count_coarse, stacks),
        is_certain=True,
    )


def measure_amount(rows: Sequence[MessageRow], stacks: Sequence[Stack]) -> Measured:
    """The least amount of noise of any part: a message, round, sender, array, number, or a crossing of two."""
    from scipy import stats

    parts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    rng = np.random.default_rng(4)
    for row in rows:
        _, round, sender, turn = row.key
        for sample in row.samples:
            line, scale = sample.line, sample.scale
            values = np.asarray(sample.values, np.float64).ravel()
            z = standardise(values, line.mechanism, scale, line.resolution, rng)
            total, where = float((z**2).sum()), f"round {round}"
            message = f"{sender}, {where}" + (f", number {turn + 1} of that round" if turn else "")
            for family, part in (
                ("whole", "all messages"),
                ("rounds", where),
                ("senders", sender),
                ("arrays", sample.array),
                ("messages", message),
                ("arrays of a round", f"{sample.array}, {where}"),
                ("arrays of a sender", f"{sample.array}, {sender}"),
                ("arrays of a message", f"{sample.array}, {message}"),
            ):
                parts[family][part][0] += total
                parts[family][part][1] += z.size
    for i, stack in enumerate(stacks):
        z = standardise(
            stack.units * stack.scales[:, None],
            stack.mechanism,
            stack.scales[:, None],
            stack.resolution * stack.scales[:, None],
            rng,
        )
        for place, total in enumerate((z**2).sum(0)):
            parts["numbers"][f"number {place} of shape {i}"] = [float(total), float(len(z))]
    least, text = 1.0, ""
    for family, own in parts.items():
        totals, sizes = np.array(list(own.values())).T
        chances = stats.chi2.cdf(totals, sizes)
        worst = int(np.argmin(chances))
        chance = min(1.0, float(chances[worst]) * len(own) * len(parts))
        if chance <= least or not text:
            least = min(least, chance)
            share = float(np.sqrt(totals[worst] / sizes[worst]))
            looked = (
                f"the least of {len(own):,} {family}, {list(own)[worst]}," if family != "whole" else "the whole"
            )
            text = f"{looked} has {share:.4g} times the stated noise over {int(sizes[worst]):,} numbers"
    return least, f"{text}, p = {least:.2g}"


def measure_room(uploads: Sequence[NoisedUpload]) -> Measured:
    """The least likely length of a part of uploads of one mechanism, with all that changes can take off it."""
    from scipy import stats

    order = 1 if uploads[0].line.mechanism == "laplace" else 2
    families = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for upload in uploads:
        where = f"round {upload.line.round}"
        for name, values in upload.arrays.items():
            size = float((np.abs(values) ** order).sum())
            message = f"{upload.line.sender}, {where}"
            for family, part in (
                ("whole", "all uploads"),
                ("rounds", where),
                ("senders", upload.line.sender),
                ("uploads", message),
                ("arrays", name),
                ("arrays of an upload", f"{name}, {message}"),
            ):
                total = families[family][part]
                total[0], total[1] = total[0] + size, total[1] + len(values)
                if name == next(iter(upload.arrays)) or "arrays" in family:
                    total[2] += upload.clip**order
    chances = []
    for family, parts in families.items():
        for part, (size, numbers, clips) in parts.items():
            most = size ** (1 / order) + clips ** (1 / order)
            law = stats.chi2(numbers) if order == 2 else stats.gamma(numbers)
            chance = float(law.cdf(most**order)) * len(parts) * len(families)
            chances.append((chance, family, part, size, numbers))
    least, family, part, size, numbers = min(chances)
    share = (size / numbers) ** (1 / order)
    looked = "the whole" if family == "whole" else f"the shortest of {len(families[family]):,} {family}, {part},"
    least = min(1.0, least)
    return least, f"{looked} is {share:.4g} times as long as the noise would be alone, p = {least:.2g}"


def measure_law(stacks: Sequence[Stack]) -> Measured:
    """Kolmogorov's distance from the declared law, as a whole and by round and sender; and too light tails."""
    from scipy import stats

    chances: list[tuple[float, str]] = []
    rng = np.random.default_rng(5)
    for stack in stacks:
        z, senders, rounds = stack.by_law, stack.senders, np.array([key.round for key in stack.keys])
        parts: list[tuple[str, Floats]] = [("all messages", z)]
        parts += [(f"round {t}", z[rounds == t]) for t in np.unique(rounds)[:MOST_PARTS]]
        parts += [(str(s), z[senders == s]) for s in np.unique(senders)[:MOST_PARTS]]
        for where, own in parts:
            values = own.ravel()
            if values.size >= FEWEST_VALUES:
                step = max(1, values.size // MOST_VALUES)
                some = values[int(rng.integers(step)) :: step]
                chances.append((float(stats.kstest(some, "norm").pvalue), f"{where}, on {len(some):,} numbers"))
        if z.size >= FEWEST_FOURTH and z.any():
            own = z / np.sqrt((z**2).mean())
            fourth = float((own**4 - 6 * own**2 + 3).mean()) * np.sqrt(z.size / 24)  # Hermite's, of variance 24
            chances.append((float(stats.norm.cdf(fourth)), f"the fourth moment of {z.size:,} numbers"))
    law = stacks[0].mechanism.replace("_", " ")
    return summarise_least(chances, f"of {{tried:,}} parts the furthest from {law} noise is {{where}}")


def measure_tails(stacks: Sequence[Stack]) -> Measured:
    """How many numbers lie in tails of fixed chances."""
    from scipy import stats

    z = np.concatenate([s.by_law.ravel() for s in stacks])
    tested = [p for p in TAILS if p * len(z) >= FEWEST_OUTSIDE]
    if not tested:
        return None
    outside = [int((np.abs(z) > stats.norm.isf(p / 2)).sum()) for p in tested]
    chances = [float(stats.binomtest(n, len(z), p).pvalue) for n, p in zip(outside, tested, strict=True)]
    worst = int(np.argmin(chances))
    chance = min(1.0, chances[worst] * len(chances))
    counted = f"{outside[worst]:,} of {len(z):,} numbers lie in a tail of {tested[worst]:g}"
    return chance, f"{counted}, p = {chance:.2g}"


def count_coarse(stacks: Sequence[Stack]) -> Measured:
    """Kinds of messages whose noise takes too few values, where no rounding is declared."""
    shares = []
    for stack in stacks:
        values = np.abs(stack.units.ravel()[:DISTINCT]).astype(np.float32)
        if stack.is_fine and not stack.resolution and len(values) >= 100:
            shares.append(len(np.unique(values)) / len(values))
    if not shares:
        return None
    return float(
        sum(s < LEAST_DISTINCT for s in shares)
    ), f"numbers take {100 * min(shares):.3g} % as many values"


def record_tests(
    tests: Sequence[NoiseTest],
    sampled: set[str],
    releases: Sequence[Release],
    delta: float,
    missing: str = "No noise of this kind was heard in a play of the run.",
) -> list[NoiseAuditRecord]:
    """A record for each kind in `releases`; of kinds that are not in `sampled`, that nothing was tested."""
    records = []
    for kind in dict.fromkeys(r.kind for r in releases if r.noise_multiplier):
        own = [r for r in releases if r.kind == kind and r.noise_multiplier]
        # what was asked of all kinds together holds, or fails, for each
        asked = [t for t in tests if t.kind in (kind, "")] if kind in sampled else []
        checks = [
            NoiseCheck(name=t.name, passed=t.passed, text=t.text, failure_rate=t.failure_rate) for t in asked
        ]
        records.append(record_kind(kind, checks, own, delta, missing))
    return records


def bound_below(
    kind: str, samples: Sequence[NoiseSample], releases: Sequence[Release], delta: float
) -> float | None:
    """The least epsilon of a kind's Gaussian noise, as large as it can be by what was measured of it.

    The standard deviation of n normal numbers is at most sqrt(sum of squares / chi-squared quantile), with
    confidence `CONFIDENCE`. Independent coins are taken as the ledger states them. None where no lower end of the
    cost of the releases is known.
    """
    own = [r for r in releases if r.kind == kind]
    units = np.concatenate([s.units for s in samples if s.line.kind == kind] or [np.zeros(0)])
    if any(r.mechanism != "gaussian" or r.sampling not in ("none", "poisson") for r in own) or not len(units):
        return None
    more = math.sqrt(float(units @ units) / float(scipy.stats.chi2.ppf(1 - CONFIDENCE, len(units))))
    if not more:  # there is no noise, which its tests say
        return None
    claim = find_claim([replace(r, noise_std=r.noise_std * more) for r in own], delta)
    if not any(term.sampled for term in claim.counts):
        return rounded_down(claim.epsilon)
    with suppress(ArithmeticError, ValueError):  # past its range it says nothing
        return rounded_down(prv.bound(claim.counts, delta).lower or 0.0)
    return None
