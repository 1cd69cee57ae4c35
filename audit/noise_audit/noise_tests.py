"""Tests of noise that nobody saw drawn: its amount, and whether it is fresh everywhere.

All messages of a run are tested together, kind by kind. Every test is a p-value, corrected for all that it looked
at, and together they fail a run of correct noise with at most the stated chance; what only a copy can cause
fails it never. More noise than declared is no fault, and noise of the run's own source is not tested.

    amount     the sum of squares of n standard normal scores is chi-squared: the least of all messages, rounds,
               senders, arrays, numbers and some of their crossings; the largest number on either side; the mean
               size of all; with Bonferroni's correction
    repeats    stretches of noise that come twice, and numbers that another master seed leaves (noise_repeats.py)

Noise that clients add to a recorded upload stays beside what they trained, u + n, of which the ledger says
|u| <= C. So |n| <= |u + n| + C for every part of a message, and over m messages the root of the sum of squares is
at most that of what was recorded and C sqrt(m): what is too short even so cannot hold the noise. Laplace noise is
held against C in the same way by sums of sizes. Neither depends on what was trained.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import numpy as np
import scipy

from fedaudit.audit.accounting.below import tell_apart
from fedaudit.audit.accounting.budget import round_down
from fedaudit.audit.accounting.noise_records import find_claim, record_kind
from fedaudit.audit.noise_audit.noise_repeats import list_searches, measure_distances
from fedaudit.audit.noise_audit.noise_samples import (
    Floats,
    Measured,
    MessageRow,
    NoisedUpload,
    NoiseHypothesis,
    NoiseSample,
    build_rows,
    list_uploads,
    sample_means,
    standardise,
)
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.ledger import Release
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import NoiseAuditRecord, NoiseCheck

MEAN_SIZE = math.sqrt(2 / math.pi)  # of a standard normal number
CONFIDENCE = 0.975  # of a lower bound


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
    samples: Sequence[NoiseSample], other_seed: Sequence[NoiseSample] = (), alpha: float = 0.05
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

    Returns
    -------
    list of NoiseTest
        The failure rates add up to at most `alpha`.
    """
    rows = build_rows(samples)
    if not rows:
        return []
    return answer_all([*_list_questions(rows, build_rows(other_seed))], alpha)


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


def confirm_source(kind: str) -> NoiseTest:
    """That the run's own source drew the noise of a kind, which a play saw: there is nothing left to test."""
    return NoiseTest(
        name="noise of the run's own source",
        kind=kind,
        passed=True,
        statistic=1.0,
        limit=0.0,
        text="every message got its noise from the run's own source, a stream of its own each, and left with it",
        failure_rate=0.0,
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
    rows: Sequence[MessageRow], other: Sequence[MessageRow]
) -> Iterator[tuple[str, NoiseHypothesis]]:
    kinds: dict[str, list[MessageRow]] = defaultdict(list)
    for row in rows:
        kinds[row.key.kind].append(row)
    for kind, own in kinds.items():
        for question in _list_laws(own):
            yield kind, question
    for question in list_searches(rows, other):
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


def _list_laws(rows: Sequence[MessageRow]) -> Iterator[NoiseHypothesis]:
    yield NoiseHypothesis(
        "amount of noise",
        "every part of the messages got at least the noise that the ledger states",
        "a part of the messages got less noise than the ledger states",
        partial(measure_amount, rows),
    )


def _iterate_scores(rows: Sequence[MessageRow]) -> Iterator[tuple[MessageRow, NoiseSample, Floats]]:
    """Every array of every message with its standard normal scores [n] by the declared law."""
    rng = np.random.default_rng(4)
    for row in rows:
        for sample in row.samples:
            values = np.asarray(sample.values, np.float64).ravel()
            line = sample.line
            yield row, sample, standardise(values, line.mechanism, sample.scale, line.resolution, rng)


def measure_amount(rows: Sequence[MessageRow]) -> Measured:
    """The least amount of noise of any part: a message, round, sender, array, number, or a crossing of two."""
    from scipy import stats

    parts: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    numbers: dict[tuple[str, int], list[Floats]] = {}  # by array and size: sums of squares, and how many
    sizes_of_all = 0.0
    furthest: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])  # below, above, and of how many
    for row, sample, z in _iterate_scores(rows):
        _, round, sender, turn = row.key
        squares, where = z**2, f"round {round}"
        message = f"{sender}, {where}" + (f", number {turn + 1} of that round" if turn else "")
        sizes_of_all += float(np.abs(z).sum())
        for part in ("all messages", where, sender):
            below, above, count = furthest[part]
            furthest[part] = [max(below, -float(z.min())), max(above, float(z.max())), count + z.size]
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
            parts[family][part][0] += float(squares.sum())
            parts[family][part][1] += z.size
        own = numbers.setdefault((sample.array, z.size), [np.zeros(z.size), np.zeros(1)])
        own[0] += squares
        own[1] += 1
    families: dict[str, tuple[Iterable[str], Floats, Floats]] = {
        family: (own, *np.array([*own.values()]).T) for family, own in parts.items()
    }
    families["numbers"] = (
        (f"number {i} of {array}" for array, size in numbers for i in range(size)),
        np.concatenate([total for total, _ in numbers.values()]),
        np.concatenate([np.full(total.size, many[0]) for total, many in numbers.values()]),
    )
    least, text, kinds = 1.0, "", len(families) + 3
    for family, (names, totals, sizes) in families.items():
        chances = np.asarray(stats.chi2.cdf(totals, sizes))
        worst = int(np.argmin(chances))
        chance = min(1.0, float(chances[worst]) * len(totals) * kinds)
        if chance <= least or not text:
            least = min(least, chance)
            share = float(np.sqrt(totals[worst] / sizes[worst]))
            name = next(islice(names, worst, None))
            looked = f"the least of {len(totals):,} {family}, {name}," if family != "whole" else "the whole"
            text = f"{looked} has {share:.4g} times the stated noise over {int(sizes[worst]):,} numbers"
    for part, (below, above, size) in furthest.items():
        far = min(below, above)  # as far as noise reaches on its shorter side
        alike = 1 if part == "all messages" else len(furthest) - 1
        chance = min(1.0, float(np.exp(size * stats.norm.logcdf(far))) * 2 * alike * kinds)
        if chance < least:
            least, side = chance, "below" if below <= above else "above"
            text = f"of {int(size):,} numbers of {part} none is more than {far:.3g} deviations {side} nothing"
    size = int(furthest["all messages"][2])
    mean = sizes_of_all / size  # which a law of many small numbers and few large ones has less of
    chance = min(1.0, kinds * float(stats.norm.cdf((mean - MEAN_SIZE) / math.sqrt((1 - MEAN_SIZE**2) / size))))
    if chance < least:
        least, text = (
            chance,
            f"the mean size of {size:,} numbers is {mean / MEAN_SIZE:.4g} times that of the noise",
        )
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
        return round_down(claim.epsilon)
    return round_down(tell_apart(claim.counts, delta, claim.epsilon)) or None
