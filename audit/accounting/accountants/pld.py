"""PLD: numerical composition of privacy-loss distributions, tight for every noise of the ledger.

Doroshenko, Ghazi, Kamath, Kumar, Manurangsi. Connect the Dots: Tighter Discrete Approximations of
Privacy Loss Distributions. PoPETS 2022. arXiv:2207.04380, Algorithm 1, as dp-accounting has it; with
Poisson sampling of Gaussian, Laplace and discrete Laplace noise for add-or-remove neighbours.

Only distributions are taken from dp-accounting, not its accountant: that one counts randomised
response once however often it is answered (0.6.0), and doubles sensitivities for replacement, which
our ledger has done already. The grid of losses is 1e-5 epsilon, coarser where there are many terms, and no finer
than 1e-4 or a twentieth of how far the losses of one release lie apart: its error is of second order, and never
downwards. More than 128 different terms are rounded to fewer, towards less noise.
"""

import math
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.accounting.accountant import Bound, Card, Numerical
from fedaudit.audit.accounting.terms import Term, Terms, coarsen_terms, drop_sampling, merge_gaussians
from fedaudit.fl.ledger import Release

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

MOST_TERMS = 128
FEW_TERMS, MANY_TERMS = 8, 64
FINEST, LEAST = 1e-4, 1e-6  # grid of losses: as fine as is needed of large ones, and of the smallest
APART = 1 / 20  # and relative to how far the losses of one release lie apart
FINE, COARSE, COARSEST = 1e-5, 2e-4, 5e-3  # and relative to the result, for few terms, more and many
MOST_STEPS = 100  # of Newton's; a dozen are enough
TAIL = 1e-15  # probability that each composition may move to an infinite loss
LEAST_DELTA = 1e-11  # below it rounding in the Fourier transforms can make a bound too low


def explain_refusal(counts: Terms) -> str:
    """Why PLD has no distribution for one of these terms; empty where it has."""
    if any(t.sampling not in ("none", "poisson") for t in counts):
        return "PLD knows no sampling of a fixed number; `wor_pld` does"
    return ""


def bound(counts: Terms, delta: float) -> Bound:
    """The cost of terms; imports dp-accounting, which is slow."""
    if reason := explain_refusal(counts):
        raise ValueError(reason)
    few = coarsen_terms(merge_gaussians(counts), MOST_TERMS)
    found = compose_terms(few, delta, distribution)
    note = describe_computation(found)
    if len(few) < len(counts):
        note += f" {len(counts):,} different releases were rounded to {len(few)}, towards less noise."
    return Bound(epsilon=found.epsilon, note=note)


def describe_computation(found: "Composed") -> str:
    """By which program, and how finely."""
    return f"Computed with dp-accounting {version('dp-accounting')}, grid of losses {found.step:.3g}."


class Composed(NamedTuple):
    epsilon: float
    step: float  # of the grid of losses


def compose_terms(
    counts: Terms, delta: float, of: "Callable[[Term, float], PrivacyLossDistribution]"
) -> Composed:
    """Terms composed, on a grid fine enough for the loss that comes out.

    It begins as fine as a guess of the loss asks for, and again with what came out.
    """
    finest = choose_finest(counts)
    relative = FINE if len(counts) <= FEW_TERMS else COARSE if len(counts) <= MANY_TERMS else COARSEST
    step = max(finest, relative * _estimate_loss(counts, delta))
    while True:
        epsilon = on_grid(counts, delta, step, of)
        needed = max(finest, relative * epsilon)
        if step <= 2 * needed:
            return Composed(epsilon, step)
        step = needed


def choose_finest(counts: Terms) -> float:
    """The grid of losses that needs no finer one: a coarse one makes small losses of many releases larger."""
    apart = min((estimate_spread(t) for t in counts), default=1.0)
    return max(LEAST, min(FINEST, APART * apart))


def estimate_spread(t: Term) -> float:
    """About how far the losses of one release lie apart: its Gaussian limit (accounting/formulas.py).

    Without sampling where that is less, as where there is next to no noise.
    """
    if t.mechanism != "gaussian":
        return min(1 / t.z, t.rate * math.expm1(min(1 / t.z, 700.0)))
    squared = (t.copies / t.z) ** 2
    hidden = min(squared, (t.copies * t.rate) ** 2 * math.expm1(min(squared, 700.0))) if t.sampled else squared
    return math.sqrt((1 - t.rate) * hidden + t.rate**2 * squared if t.told else hidden)


def _estimate_loss(counts: Terms, delta: float) -> float:
    """About how large the loss is: its Gaussian limit, or without sampling if less."""
    from fedaudit.audit.accounting.accountants.exact import closed_form, gaussian

    whole = closed_form(drop_sampling(counts), delta)
    if any(t.mechanism != "gaussian" for t in counts):
        return whole
    limit = math.sqrt(math.fsum(n * estimate_spread(t) ** 2 for t, n in counts.items()))
    return min(whole, gaussian(limit, delta))


def library_bound(counts: Terms, delta: float) -> float:
    """epsilon of Gaussian terms by dp-accounting's own accountant, on the same grid."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    step = max(choose_finest(counts), FINE * _estimate_loss(counts, delta))
    accountant = PLDAccountant(value_discretization_interval=step)
    for term, count in sorted(counts.items()):
        accountant.compose(PoissonSampledDpEvent(term.rate, GaussianDpEvent(term.z)), count)
    return float(accountant.get_epsilon(delta))


def on_grid(
    counts: Terms, delta: float, step: float, of: "Callable[[Term, float], PrivacyLossDistribution]"
) -> float:
    """epsilon at `delta`; infinite below LEAST_DELTA."""
    if delta < LEAST_DELTA:
        return math.inf
    total: PrivacyLossDistribution | None = None
    for term, count in sorted(counts.items()):
        one = of(term, step).self_compose(count, TAIL) if count > 1 else of(term, step)
        total = one if total is None else total.compose(one, TAIL)
    return 0.0 if total is None else max(0.0, float(total.get_epsilon_for_delta(delta)))


def distribution(term: Term, step: float) -> "PrivacyLossDistribution":
    """The privacy-loss distribution of one release, on a grid of this step."""
    from dp_accounting.pld import privacy_loss_distribution as library
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    if reason := explain_refusal({term: 1}):
        raise ValueError(reason)
    grid = {"value_discretization_interval": step}
    if term.mechanism == "gaussian":
        other = None if term.rate == 1 else _compute_pmf(term, step, removed=False)
        return library.PrivacyLossDistribution(_compute_pmf(term, step, removed=True), other)
    if term.mechanism == "laplace":
        return library.from_laplace_mechanism(term.z, sampling_prob=term.rate, **grid)
    # No pure release loses more than binary randomised response at its epsilon (Kairouz, Oh,
    # Viswanath. arXiv:1311.0776, Thm 3.4); discrete Laplace noise on a count of one loses just that.
    # Sampling makes e^epsilon - 1 smaller by the rate.
    whole = 1 / term.z
    pure = whole + math.log(term.rate + (1 - term.rate) * math.exp(-whole))
    return library.from_privacy_parameters(DifferentialPrivacyParameters(pure, 0), **grid)


def _compute_pmf(term: Term, step: float, removed: bool) -> "PLDPmf":
    """One direction of Gaussian noise on the grid, by the library's range and its pessimistic connected dots."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    direction = AdjacencyType.REMOVE if removed else AdjacencyType.ADD
    widest = 1.0 if term.told else -math.expm1(term.copies * math.log1p(-term.rate)) if term.rate < 1 else 1.0
    z = term.z / term.copies  # where one copy is drawn all are: no loss lies further out
    ends = GaussianPrivacyLoss(z, sampling_prob=widest, adjacency_type=direction).connect_dots_bounds()
    low, high = math.floor(ends.epsilon_lower / step), math.ceil(ends.epsilon_upper / step)
    losses = np.arange(low, high + 1) * step
    deltas = curve(term, losses, removed)
    if term.told:
        deltas = mix_told(term, losses, deltas, curve(term._replace(rate=1.0), losses, removed))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, low, high, deltas)


def curve(term: Term, epsilon: NDArray[np.floating], removed: bool) -> NDArray[np.floating]:
    """delta at each epsilon of one sampled Gaussian release; as the library has it, for all at once.

    With P = (1-q) N(0, z^2) + q N(1, z^2) and Q = N(0, z^2), the loss of P against Q is above epsilon where
    x > t = z^2 ln((e^epsilon - 1 + q) / q) + 1/2, and that of Q against P where x < t(-epsilon). Of c copies P is
    the mixture of N(k, z^2) at k = 0 ... c with binomial weights, and q the chance that any is drawn.
    """
    from scipy.special import log_ndtr
    from scipy.stats import binom

    z, shifts = term.z, np.arange(1, term.copies + 1)
    shares = binom.pmf(shifts, term.copies, term.rate)
    shifts, shares = shifts[shares > 0], shares[shares > 0]
    q = -math.expm1(term.copies * math.log1p(-term.rate)) if term.rate < 1 else 1.0
    size = epsilon if removed else -epsilon
    inside = size > math.log1p(-q) if q < 1 else np.full(size.shape, True)
    log_gap = np.full(size.shape, -np.inf)  # ln(e^size - 1 + q)
    near, far = inside & (size < 1), inside & (size >= 1)
    log_gap[near] = np.log(np.maximum(np.expm1(size[near]) + q, math.ulp(0.0)))
    log_gap[far] = size[far] + np.log1p((q - 1) * np.exp(-size[far]))
    t = _find_threshold(log_gap, shifts, shares, z)
    if removed:
        there = sum(s * np.exp(log_ndtr((k - t) / z)) for k, s in zip(shifts, shares, strict=True))
        found = there - np.exp(log_gap + log_ndtr(-t / z))
        found = np.where(inside, found, -np.expm1(np.minimum(epsilon, 0.0)))
    else:
        there = sum(s * np.exp(epsilon + log_ndtr((t - k) / z)) for k, s in zip(shifts, shares, strict=True))
        found = np.exp(epsilon + log_gap + log_ndtr(t / z)) - there
        found = np.where(inside, found, 0.0)
    clipped: NDArray[np.floating] = np.clip(found, 0.0, 1.0)
    return clipped


def _find_threshold(
    log_gap: NDArray[np.floating], shifts: NDArray[np.integer], shares: NDArray[np.floating], z: float
) -> NDArray[np.floating]:
    """x where ln sum_k shares_k e^((2 k x - k^2) / 2 z^2), which is convex and rises, is `log_gap`; of its shape.

    From where one term alone reaches it, which lies to the right, Newton's steps never pass it.
    """
    terms = [(math.log(s), float(k) / z**2, float(k) / 2) for k, s in zip(shifts, shares, strict=True)]
    x = np.min([(log_gap - log_share) / rise + half for log_share, rise, half in terms], axis=0)
    known = np.isfinite(log_gap)
    y, wanted = x[known], log_gap[known]
    for _ in range(MOST_STEPS if len(terms) > 1 and y.size else 0):
        total, slope = np.zeros_like(y), np.zeros_like(y)  # relative to e^wanted
        for log_share, rise, half in terms:
            each = np.exp(log_share + rise * (y - half) - wanted)
            total, slope = total + each, slope + rise * each
        step = np.log(total) * total / slope
        y = y - step
        if np.max(np.abs(step)) < 1e-12 * max(1.0, z):
            break
    x[known] = y
    return x  # type: ignore[no-any-return]


def mix_told(
    term: Term, epsilon: NDArray[np.floating], hidden: NDArray[np.floating], full: NDArray[np.floating]
) -> NDArray[np.floating]:
    """delta at each epsilon towards an observer who sees through the draw where it is drawn itself.

    It knows which of the three it met, so their curves are averaged; the last is that of no loss.
    """
    q = term.rate
    mixed: NDArray[np.floating] = (
        (1 - q) * hidden + q * q * full - q * (1 - q) * np.expm1(np.minimum(epsilon, 0.0))
    )
    return mixed


class PLD(Numerical):
    card = Card(
        title="PLD",
        source="arXiv:2207.04380, Alg. 1 (dp-accounting)",
        adjacency=("add_or_remove_one", "replace_one"),
    )
    function = staticmethod(bound)
    least_delta = LEAST_DELTA

    def declines(self, counts: Terms) -> str:
        return explain_refusal(counts)

    def refuses(self, release: Release) -> str | None:
        if release.sampling == "fixed_without_replacement" and release.sample_rate < 1:
            return "PLD knows no sampling of a fixed number; `wor_pld` does"
        poisson = release.sampling == "poisson" and release.sample_rate < 1
        if poisson and release.adjacency == "replace_one":
            return "PLD credits Poisson sampling for add-or-remove neighbours only"
        return None
