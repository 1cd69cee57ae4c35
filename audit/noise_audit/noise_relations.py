"""Whether noise is drawn independently at every place: rounds, senders, kinds, and the numbers of a message.

Correlations are taken of normal scores of signed ranks, and of the ranks of sizes alone, so that they hold for
noise of any law. The correlation r of two independent vectors of n standard normal numbers has an exact law,

    r sqrt((n - 1) / (1 - r^2))  is Student's t with n - 1 degrees of freedom  (mean 0 is known),

and the largest of all correlations, at every shift, is held against it with Bonferroni's correction. What is
spread over many numbers shows in sums over messages and numbers, too large for shared noise and too small for
noise that cancels, in lengths that vary too little, and in the squares of all correlations, which see noise of a
low rank (John. Some optimal multivariate tests. Biometrika 1971).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from fedaudit.audit.noise_audit.noise_samples import (
    Floats,
    Index,
    Measured,
    NoisedUpload,
    NoiseHypothesis,
    Stack,
    summarise_least,
)

MOST_ROWS, MOST_COLUMNS = 160, 512  # of messages that are compared pair by pair at every shift
MOST_NUMBERS = 2_000_000  # in the spectra of a test
MOST_PAIRS = 4_000_000  # pairs of senders, times rounds
COORDINATES = 64  # numbers of a message that are compared over messages
MOST_COMPARED = 4_000_000  # numbers of uploads that are compared in pairs
FEWEST = 20  # products in a correlation
EQUAL = 2.0**-17  # by how much equal lengths of n numbers differ at most when each is rounded, times n^(1/2)


class Largest:
    """The least likely of many correlations."""

    def __init__(self) -> None:
        self.tried = 0
        self.chance = 1.0
        self.correlation = 0.0

    def add(self, correlations: Floats, numbers: Floats | float) -> None:
        """Correlations of vectors with so many numbers each."""
        from scipy import special

        r = np.clip(correlations.ravel(), -1, 1)
        n = np.broadcast_to(np.asarray(numbers, np.float64), correlations.shape).ravel()
        r, n = r[n >= FEWEST], n[n >= FEWEST]
        if not r.size:
            return
        self.tried += r.size
        if n[0] == n[-1] and (n == n[0]).all():  # the largest is the least likely
            largest = int(np.argmax(np.abs(r)))
            r, n = r[largest : largest + 1], n[:1]
        t = np.abs(r) * np.sqrt((n - 1) / np.maximum(1 - r**2, 1e-300))
        chances = 2 * special.stdtr(n - 1, -t)
        worst = int(np.argmin(chances))
        if chances[worst] < self.chance:
            self.chance, self.correlation = float(chances[worst]), float(r[worst])

    def add_chance(self, chance: float) -> None:
        """The p-value of something else in the same question."""
        self.tried += 1
        self.chance = min(self.chance, chance)

    def summarise(self, what: str) -> Measured:
        if not self.tried:
            return None
        chance = min(1.0, self.chance * self.tried)
        text = f"the largest of {self.tried:,} correlations {what} is {self.correlation:.3f}, p = {chance:.2g}"
        return chance, text


def relate_messages(stacks: Sequence[Stack]) -> Measured:
    """Every pair of messages, one of them shifted by any number of places."""
    largest = Largest()
    for stack in stacks:
        rows = spread_out(len(stack.units), MOST_ROWS)
        for scores in (stack.signed, stack.sized):
            some = scores[rows, :MOST_COLUMNS]
            lengths = np.sqrt((some**2).sum(1))
            spectra = np.fft.rfft(some / np.where(lengths > 0, lengths, 1)[:, None], axis=1)
            for i in range(len(some) - 1):
                largest.add(np.fft.irfft(np.conj(spectra[i]) * spectra[i + 1 :], some.shape[1]), some.shape[1])
    return largest.summarise("of two messages, at any shift,")


def relate_senders(stacks: Sequence[Stack]) -> Measured:
    """Every pair of senders, and each with itself, so many rounds apart: the sum over all rounds."""
    largest = Largest()
    for stack in stacks:
        names, place = np.unique(stack.senders, return_inverse=True)
        span = int(stack.times.max()) + 1
        most = max(2, int((MOST_PAIRS / (2 * span)) ** 0.5))
        busiest = np.argsort(-np.bincount(place), kind="stable")[:most]
        seat = np.full(len(names), -1)
        seat[busiest] = np.arange(len(busiest))
        kept = seat[place] >= 0
        times, seats = stack.times[kept], seat[place][kept]
        columns = max(1, MOST_NUMBERS // (span * len(busiest)))
        for scores in (stack.signed, stack.sized):
            series = np.zeros((span, len(busiest), min(columns, scores.shape[1])))
            there = np.zeros((span, len(busiest)))
            series[times, seats] = scores[kept, :columns]
            there[times, seats] = 1
            _correlate_series(series, there, largest)
    return largest.summarise("of two senders, any number of rounds apart,")


def _correlate_series(series: Floats, there: Floats, largest: Largest) -> None:
    """Correlations of series [T, K, n] with each other at every lag; `there` [T, K] marks their values."""
    span, many, numbers = series.shape
    size = 2 * span

    def cross(a: Floats, b: Floats) -> Floats:
        """[lags, K, K] sum over t of a[t, k] b[t + lag, j]."""
        one, other = np.fft.rfft(a, size, axis=0), np.fft.rfft(b, size, axis=0)
        return np.asarray(np.fft.irfft(np.conj(one) @ other.transpose(0, 2, 1), size, axis=0)[:span])

    products = cross(series, series)
    energy = (series**2).sum(2)[:, :, None]
    present = there[:, :, None]
    lengths = np.sqrt(np.maximum(cross(energy, present) * cross(present, energy), 1e-12))
    counts = np.round(cross(present, present)) * numbers
    counts[0][np.tril_indices(many)] = 0  # each pair once, and none with itself
    largest.add(products / lengths, counts)


def relate_numbers(stacks: Sequence[Stack]) -> Measured:
    """Numbers of a message at every distance, and chosen pairs of them over all messages."""
    largest = Largest()
    rng = np.random.default_rng(6)
    for stack in stacks:
        messages, numbers = stack.units.shape
        chosen = rng.permutation(numbers)[: COORDINATES // 2]
        chosen = np.unique(np.concatenate([chosen, np.minimum(chosen + 1, numbers - 1)]))
        for scores in (stack.signed, stack.sized):
            columns = scores[:, chosen]
            lengths = np.sqrt((columns**2).sum(0))
            together = (columns.T @ columns) / np.maximum(np.outer(lengths, lengths), 1e-12)
            largest.add(together[np.triu_indices(len(chosen), 1)], messages)
            some = scores[: max(1, MOST_NUMBERS // numbers)]
            power = (np.abs(np.fft.rfft(some, axis=1)) ** 2).sum(0)
            lagged = np.fft.irfft(power, numbers)[1 : (numbers + 1) // 2]
            largest.add(lagged / max(float((some**2).sum()), 1e-12), some.size if numbers >= FEWEST else 0)
    return largest.summarise("within messages, at any distance,")


def relate_kinds(stacks: Sequence[Stack]) -> Measured:
    """Every two kinds of the same message, at any shift."""
    largest = Largest()
    for one, other in combinations(stacks, 2):
        if one.kind == other.kind:
            continue
        here = {key[1:]: i for i, key in enumerate(one.keys)}
        pairs = [(here[key[1:]], i) for i, key in enumerate(other.keys) if key[1:] in here]
        if not pairs:
            continue
        rows = np.array(pairs[: max(1, MOST_NUMBERS // (one.units.shape[1] + other.units.shape[1]))])
        for name in ("signed", "sized"):
            a, b = getattr(one, name)[rows[:, 0]], getattr(other, name)[rows[:, 1]]
            _correlate_shifts(a, b, largest)
    return largest.summarise("of two kinds, at any shift,")


def _correlate_shifts(a: Floats, b: Floats, largest: Largest) -> None:
    """Correlations of [messages, m] with [messages, n] at every shift."""
    size = a.shape[1] + b.shape[1]

    def cross(x: Floats, y: Floats) -> Floats:
        spectra = np.conj(np.fft.rfft(x, size, axis=1)) * np.fft.rfft(y, size, axis=1)
        return np.asarray(np.fft.irfft(spectra.sum(0), size))

    ones = np.ones_like(a), np.ones_like(b)
    lengths = np.sqrt(np.maximum(cross(a**2, ones[1]) * cross(ones[0], b**2), 1e-12))
    largest.add(cross(a, b) / lengths, np.round(cross(*ones)))


def relate_clean(stacks: Sequence[Stack]) -> Measured:
    """The noise and what it was added to: numbers, their sizes and last bits, and whole messages."""
    from scipy import stats

    largest = Largest()
    for stack in stacks:
        known = stack.clean.any(1)
        clean, signed, sized = stack.clean[known], stack.signed[known], stack.sized[known]
        if not len(clean):
            continue
        lengths = np.sqrt((clean**2).sum(1))
        along = (signed * clean).sum(1) / lengths  # each is standard normal
        largest.add(along / np.sqrt((signed**2).sum(1)), signed.shape[1])
        largest.add(np.array([along.sum() / np.sqrt(len(along) * max(1e-12, (along**2).sum()))]), len(along))
        # noise that spares this direction
        largest.add_chance(float(stats.chi2.cdf((along**2).sum(), len(along))))
        spread = np.linalg.norm(stack.units[known], axis=1)
        if len(np.unique(lengths)) > 1 and spread.std() > 0:
            largest.add(np.corrcoef(lengths, spread)[:1, 1], len(lengths) - 1)
        scales = stack.scales[known][:, None]
        bits = _read_last_bits(clean + stack.units[known] * scales, stack.resolution * scales)
        for ours, theirs in ((signed, clean), (sized, np.abs(clean)), (bits, np.sign(clean))):
            if ours.std() > 0 and theirs.std() > 0:
                largest.add(np.corrcoef(ours.ravel(), theirs.ravel())[:1, 1], ours.size - 1)
    return largest.summarise("with what the noise was added to")


def _read_last_bits(left: Floats, spacing: Floats) -> Index:
    """Last bits of numbers that left: multiples of `spacing`, rounded to single precision where they are large.

    A multiple near 0 ends in zeros as a number of single precision, whatever it hides.
    """
    single = np.spacing(np.abs(left).astype(np.float32)).astype(np.float64)
    return np.round(left / np.maximum(single, spacing)).astype(np.int64) & 1


def sum_up(stacks: Sequence[Stack]) -> Measured:
    """Sums over messages, rounds, senders and numbers spread as those of independent numbers."""
    chances: list[tuple[float, str]] = []
    for stack in stacks:
        scores = stack.signed
        senders = np.unique(stack.senders, return_inverse=True)[1]
        for name, labels in (
            ("all messages", np.zeros(len(scores), np.int64)),
            ("messages of a round", stack.times),
            ("messages of a sender", senders),
        ):
            sums, counts = _group(scores, labels)
            several = counts > 1
            if several.any():
                total = float((sums[several] ** 2 / counts[several, None]).sum())
                chances.append((_compute_two_sided_p(total, int(several.sum()) * scores.shape[1]), name))
        if scores.shape[1] > 1:
            total = float((scores.sum(1) ** 2).sum()) / scores.shape[1]
            chances.append((_compute_two_sided_p(total, len(scores)), "the numbers of a message"))
    return summarise_least(chances, "of {tried:,} families of sums, those over {where} are the least likely")


def _compute_two_sided_p(total: float, degrees: int) -> float:
    from scipy.stats import chi2

    return min(1.0, 2 * float(min(chi2.cdf(total, degrees), chi2.sf(total, degrees))))


def _group(scores: Floats, labels: Index) -> tuple[Floats, Floats]:
    """Sums of rows with equal labels, and how many there are."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return np.add.reduceat(scores[order], starts, axis=0), np.diff([*starts, len(order)]).astype(np.float64)


def compare_lengths(stacks: Sequence[Stack]) -> Measured:
    """Lengths of messages vary no less than chance makes them: noise of a fixed length tells that of the message.

    The cube root of chi-squared is nearly normal (Wilson, Hilferty 1931). More variation is no fault. Nor are two
    messages equally long but by chance: noise that is turned by any rotation keeps its length.
    """
    from scipy import stats

    chances, twins, expected = list[tuple[float, str]](), 0, 0.0
    for stack in stacks:
        messages, numbers = stack.units.shape
        squares = (stack.standardise(stack.units) ** 2).mean(1)
        if messages > 2 and numbers >= FEWEST and squares.mean() > 0:
            roots = np.cbrt(squares / squares.mean())
            total = float(((roots - roots.mean()) ** 2).sum()) * 9 * numbers / 2
            chances.append((float(stats.chi2.cdf(total, messages - 1)), ""))
        if stack.is_fine and numbers >= FEWEST:
            found, of, share = _count_twins(stack)
            twins, expected = twins + found, expected + of * share
    if chances:
        chances.append((float(stats.poisson.sf(twins - 1, expected)), ""))
    return summarise_least(chances, f"lengths of messages vary as chance makes them, and {twins} pairs are equal")


def _count_twins(stack: Stack) -> tuple[int, int, float]:
    """Pairs of messages as long as each other, of how many, and the share that chance makes so at most.

    The logarithm of the length of n normal numbers has variance 1 / 2n, that of longer tails a larger one.
    """
    squares = (stack.units**2).mean(1)
    lengths = np.sort(np.log(squares[squares > 0]) / 2)
    near = max(EQUAL, 4 * stack.resolution)
    ends = np.searchsorted(lengths, lengths + near / stack.units.shape[1] ** 0.5, side="right")
    pairs = len(lengths) * (len(lengths) - 1) // 2
    return int((ends - np.arange(len(lengths)) - 1).sum()), pairs, min(1.0, near * (2 / np.pi) ** 0.5)


def find_low_rank(stacks: Sequence[Stack]) -> Measured:
    """The squares of the correlations of all pairs of messages, together."""
    from scipy import stats

    chances, tried = list[tuple[float, str]](), 0
    for stack in stacks:
        some = stack.signed[spread_out(len(stack.units), MOST_ROWS), :MOST_COLUMNS]
        messages, numbers = some.shape
        pairs = messages * (messages - 1) // 2
        if pairs >= FEWEST and numbers >= FEWEST:
            unit = some / np.maximum(np.sqrt((some**2).sum(1, keepdims=True)), 1e-300)
            total = float((((unit @ unit.T) ** 2).sum() - messages) / 2)
            chances.append((float(stats.chi2.sf(total * numbers, pairs)), ""))  # each has mean 1 / n
            tried += pairs
    return summarise_least(chances, f"the squares of {tried:,} correlations of messages together")


def measure_distances(uploads: Sequence[NoisedUpload]) -> Measured:
    """The least likely distance of two uploads, and of one from the opposite of the other."""
    from scipy import stats

    shapes = defaultdict[tuple[tuple[str, int], ...], list[NoisedUpload]](list)
    for upload in uploads:
        shapes[tuple((name, len(v)) for name, v in sorted(upload.arrays.items()))].append(upload)
    chances: list[tuple[float, float]] = []
    tried = 0
    for own in shapes.values():
        some = [own[i] for i in spread_out(len(own), MOST_ROWS)]
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


def spread_out(many: int, most: int) -> Index:
    """Places of at most `most` of `many` things, equally far apart."""
    return np.unique(np.linspace(0, many - 1, min(many, most)).round().astype(np.int64))


def list_relations(stacks: Sequence[Stack]) -> Iterator[NoiseHypothesis]:
    """Questions about the noise of one kind."""
    yield NoiseHypothesis(
        "independence of messages",
        "the noise of each message is unrelated to that of every other",
        "the noise of one message gives away that of another, so that whoever holds both can subtract it",
        partial(relate_messages, stacks),
    )
    yield NoiseHypothesis(
        "independence of senders and rounds",
        "each sender draws its noise anew in every round, and on its own",
        "the noise of one sender gives away its own of later rounds, or that of another",
        partial(relate_senders, stacks),
    )
    yield NoiseHypothesis(
        "independence within messages",
        "the numbers of a message have noise of their own",
        "one number's noise gives away that of another in the same message",
        partial(relate_numbers, stacks),
    )
    yield NoiseHypothesis(
        "independence of the data",
        "the noise has nothing to do with the values that it hides",
        "the noise depends on the values that it should hide, and so gives something of them away",
        partial(relate_clean, stacks),
    )
    yield NoiseHypothesis(
        "sums of noise",
        "the noise neither cancels nor adds up over rounds, senders or numbers",
        "the noise cancels or adds up over rounds, senders or numbers, so that sums hold too little of it",
        partial(sum_up, stacks),
    )
    yield NoiseHypothesis(
        "lengths of noise",
        "the length of the noise is left to chance",
        "the noise of all messages is about equally long, which gives away how long the message was",
        partial(compare_lengths, stacks),
    )
    yield NoiseHypothesis(
        "rank of the noise",
        "the noise of many messages cannot be computed from that of few",
        "the noise of many messages is a mix of few draws and can be computed from few messages",
        partial(find_low_rank, stacks),
    )


def ask_between_kinds(stacks: Sequence[Stack]) -> NoiseHypothesis:
    """The question about the noise of several kinds."""
    return NoiseHypothesis(
        "independence of kinds",
        "the kinds of values in a message have noise of their own",
        "the noise on one kind of values gives away that on another in the same message",
        partial(relate_kinds, stacks),
    )
