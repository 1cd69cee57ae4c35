"""What a setting costs, from both sides: an upper bound that holds, and a lower one that refutes.

| releases | at most | at least |
|---|---|---|
| Gaussian, not sampled, also in trees; one Laplace | closed form | the same |
| several of Laplace, discrete Laplace, randomised response | PLD | PLD, optimistic grid |
| Poisson | PLD | PLD, optimistic grid; the chance to be in the first releases |
| a fixed number: replaced, added, removed | WOR-PLD, replaced | Poisson at that z: all others -C, the target +C |
| a fixed number: zeroed out | WOR-PLD, replaced; closed form | its own pair, PLD, optimistic grid |
| shuffled batches, shuffled reports | audit/claims/shuffling.py | the same |
| sampled records, towards clients with k of them | PLD of binomial mixtures (arXiv:2401.10294) | one record |
| the best of several runs | Papernot, Steinke (arXiv:2110.03620, Thm 2; pure: (2 + eta) epsilon) | one run |

A lower bound needs neighbours that differ by the whole sensitivity. Where a setting says that its sensitivity may
be loose, or states an epsilon without its mechanism, there is none.
"""

import contextlib
import math
import sys
from typing import NamedTuple

from fedaudit.audit.accounting.accountants._engines import choose
from fedaudit.audit.accounting.accountants.exact import closed_form
from fedaudit.audit.accounting.terms import Term, drop_sampling, merge_gaussians
from fedaudit.audit.claims.claim import Claim
from fedaudit.audit.claims.setting import Noised, Setting, Tuning, assume_noise

NO_DELTA = "Gaussian noise at delta 0"
OUT_OF_RANGE = "numbers too large or too small to compute with"
CELLS, LONGEST_TAIL = 60_000, 9.0  # of a density that is cut into pieces
MOST_LOSSES, ROUNDED = 1e6, 2e-3  # of one release; the second relative to the bound from above
LARGEST_COMPOSED = 500.0  # beyond it a loss is composed on no grid
LEAST_DELTA = 1e-10  # what is lost of the tails is far less
TAIL = 1e-15
FINEST, FINE = 1e-4, 1e-5  # grid of losses, where a bound from below or a mixture is composed


class Interval(NamedTuple):
    """epsilon lies within; [0, infinity] says nothing."""

    lower: float
    upper: float
    how: str  # the upper bound was computed
    below: str = ""  # how the lower one was


def interval(claim: Claim, s: Setting, count: int, delta: float | None = None) -> Interval:
    """What `count` releases cost, at the setting's delta by default; imports dp-accounting, which is slow.

    The lower bound of sampled or tuned releases, which takes time, is left at 0; see certify().
    """
    delta = claim.delta(s) if delta is None else delta
    if not s.published:
        return Interval(0.0, math.inf, "the noise is not published")
    if delta >= 1:
        return Interval(0.0, 0.0, "at delta 1 every mechanism is private")
    one = assume_noise(s, claim.mechanism, claim.unit, claim.adjacency)
    attained = _has_equality(claim, s)
    if not one.term.z:
        return Interval(math.inf if attained else 0.0, math.inf, "no noise covers it", "no noise covers it")
    if one.term.mechanism == "gaussian" and not delta:  # however it is sampled, mixed or selected
        return Interval(math.inf if attained else 0.0, math.inf, NO_DELTA, NO_DELTA)
    try:
        found = _compute_interval(one, s, count, delta, attained)
    except (ArithmeticError, RuntimeError, ValueError):  # the last ones of libraries, at the ends of numbers
        return Interval(0.0, math.inf, OUT_OF_RANGE)
    if math.isinf(found.upper):  # finite, and larger than the largest number
        return found._replace(lower=min(found.lower, sys.float_info.max), how=OUT_OF_RANGE)
    return found


def _compute_interval(one: Noised, s: Setting, count: int, delta: float, attained: bool) -> Interval:
    if s.tuned is not None:
        return Interval(0.0, _compute_tuning(one.term, count, delta, s.tuned), "tuning by Papernot and Steinke")
    if s.shuffled is not None:
        return _compute_reports(one.term, count, s.shuffled, delta, attained)
    if s.sampling == "shuffle":
        return _compute_batches(one.term, count, float(s.rate), delta, attained)
    if one.records > 1:
        return Interval(0.0, compute_group_epsilon(one, count, delta), "PLD of binomial mixtures")
    counts = merge_gaussians({one.term: count})
    upper, how = closed_form(drop_sampling({one.in_full or one.term: count}), delta), "closed form"
    engine = choose(counts, delta)
    composed = getattr(engine, "function", None)
    if composed is not None:
        with contextlib.suppress(ArithmeticError, RuntimeError, ValueError):  # the closed form still bounds it
            upper, how = min((upper, how), (composed(counts, delta).epsilon, engine.card.title))
    if one.floor != one.term or not attained:
        return Interval(0.0, upper, how)
    if composed is None:
        return Interval(upper, upper, how, how)
    lower = 0.0
    with contextlib.suppress(ArithmeticError, RuntimeError, ValueError):
        lower = _compute_optimistic(one.term, count, delta)
    return Interval(min(upper, lower), upper, how, "PLD, optimistic grid")


def certify(claim: Claim, s: Setting, count: int, delta: float | None = None) -> Interval:
    """The interval with a lower bound that also holds for sampled and tuned releases."""
    delta = claim.delta(s) if delta is None else delta
    found = interval(claim, s, count, delta)
    if (
        found.lower
        or math.isinf(found.upper)
        or not _has_equality(claim, s)
        or s.shuffled
        or s.sampling == "shuffle"
    ):
        return found
    one = assume_noise(s, claim.mechanism, claim.unit, claim.adjacency)
    if one.floor is None:
        return found
    below, by = 0.0, ""
    with contextlib.suppress(ArithmeticError, RuntimeError, ValueError):
        below, by = _bound_below(one.floor, count, delta, found.upper)
        if one.zeroed and one.floor.mechanism == "gaussian":
            below, by = max((below, by), _tell_drawn_apart(one.floor, (2.0, 1.0), count, delta, found.upper))
    # engines that contradict each other show nothing
    return found._replace(lower=below, below=by) if below <= found.upper else found


def _has_equality(claim: Claim, s: Setting) -> bool:
    answers = (s.mechanism or claim.mechanism) == "randomized_response"
    return s.attained and (s.epsilon is None or answers)


def _bound_below(term: Term, count: int, delta: float, upper: float) -> tuple[float, str]:
    if term.mechanism != "gaussian" or not delta:
        return _compute_optimistic(term, count, delta), "PLD, optimistic grid"
    if not term.sampled:
        return closed_form(merge_gaussians({term: count}), delta), "closed form"
    return max(
        _tell_drawn_apart(term, (1.0, 0.0), count, delta, upper),
        (taken_part(term, count, delta), "the chance to be in the first releases"),
    )


def _tell_drawn_apart(
    term: Term, sums: tuple[float, float], count: int, delta: float, upper: float
) -> tuple[float, str]:
    """What telling a unit that is drawn from one that is not costs at least, and how it was computed.

    `sums` are those of a draw that has the unit, and of the same draw without it: 1 and 0 where all others send
    zeros. Where a fixed number is drawn, a unit that may send up to 1 is zeroed out and all others send -1, they are
    2 and 1. Else a release is N(0): telling cells of the outcome apart, and rounding losses down, shows no more
    than the outcome itself.
    """
    if delta <= LEAST_DELTA or upper > LARGEST_COMPOSED:
        return 0.0, ""
    import numpy as np
    from dp_accounting.pld import pld_pmf
    from scipy.special import log_ndtr

    z, q = term.z, term.rate
    edges = np.linspace(-LONGEST_TAIL * z, max(sums) + LONGEST_TAIL * z, CELLS)
    inner = edges[:-1]

    def log_mass(mean: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        left, right = (inner - mean) / z, (edges[1:] - mean) / z
        flip = left > 0  # of the smaller tail
        low, high = np.where(flip, -right, left), np.where(flip, -left, right)
        tail = log_ndtr(high)
        return tail + np.log(-np.expm1(np.minimum(log_ndtr(low) - tail, -1e-300)))  # type: ignore[no-any-return]

    apart, drawn = math.log1p(-q) + log_mass(0.0), math.log(q)
    there, gone = (np.logaddexp(apart, drawn + log_mass(total)) for total in sums)
    longest = float(np.max(np.abs(there - gone)))
    step = max(ROUNDED * upper / count, longest / MOST_LOSSES)
    most = 0.0
    for first, second in ((there, gone), (gone, there)):
        losses = np.floor((first - second) / step - 1e-9).astype(int)
        low = int(losses.min())
        shares = np.bincount(losses - low, weights=np.exp(first))
        one = pld_pmf.DensePLDPmf(step, low, shares, 0.0, False)
        # what is cut from the tails is counted as lost
        composed = one.self_compose(count, TAIL)
        most = max(most, float(composed.get_epsilon_for_delta(delta + 2 * TAIL)))
    return most, "PLD, optimistic grid"


def taken_part(term: Term, count: int, delta: float) -> float:
    """The first m releases are not sampled with probability q^m: for every event P(S) >= q^m U(S), so that
    epsilon >= epsilon_U(delta / q^m) + m ln q. Enough where noise is so small that sampling earns nothing."""
    found, share = 0.0, 1.0
    for m in range(1, count + 1):
        share *= term.rate
        if share <= delta:
            break
        alone = closed_form(merge_gaussians({term._replace(sampling="none", rate=1.0): m}), delta / share)
        found = max(found, alone + math.log(share))
    return found


def _compute_optimistic(term: Term, count: int, delta: float) -> float:
    """A lower bound of pure noise: losses are rounded down and tails dropped."""
    from dp_accounting.pld import privacy_loss_distribution as library

    if delta == 0:
        return 0.0 if term.mechanism == "gaussian" else count * _compute_pure(term)
    step = _choose_grid(term, count, delta)
    grid = {"value_discretization_interval": step, "pessimistic_estimate": False}
    if term.mechanism == "laplace":
        one = library.from_laplace_mechanism(term.z, sampling_prob=term.rate, use_connect_dots=False, **grid)
    elif term.mechanism != "gaussian" and not term.sampled and term.z > 2e-3:
        # binary randomised response of the same epsilon, which discrete Laplace noise on a count of one contains
        one = library.from_randomized_response(2 / (1 + math.exp(1 / term.z)), 2, **grid)
    else:
        return 0.0
    return max(0.0, float(one.self_compose(count).get_epsilon_for_delta(delta)))


def _choose_grid(term: Term, count: int, delta: float) -> float:
    """A step that the loss without sampling allows; the bounds hold at every step."""
    return max(FINEST, FINE * closed_form(drop_sampling({term: count}), delta))


def _compute_pure(term: Term) -> float:
    """epsilon at delta 0 of one release of pure noise."""
    whole = 1 / term.z
    return whole + math.log(term.rate + (1 - term.rate) * math.exp(-whole))


def compute_group_epsilon(one: Noised, count: int, delta: float) -> float:
    """A client with k records, each in a Poisson batch by a coin of its own: a binomial mixture of shifts."""
    if not delta:
        return math.inf
    from dp_accounting.pld import privacy_loss_distribution as library
    from scipy.stats import binom

    odds = [float(binom.pmf(k, one.records, one.term.rate)) for k in range(one.records + 1)]
    kept = [k for k, p in enumerate(odds) if p > 1e-18]
    lost = max(0.0, 1 - math.fsum(odds[k] for k in kept))
    shifts, shares = [float(k) for k in kept], [odds[k] for k in kept]
    if lost:
        shifts, shares = [*shifts, float(one.records)], [*shares, lost]  # the tail counts as every record
    mixture = library.from_mixture_gaussian_mechanism(
        one.term.z,
        shifts,
        shares,
        value_discretization_interval=10 * _choose_grid(one.term, one.records * count, delta),
    )
    return max(0.0, float(mixture.self_compose(count).get_epsilon_for_delta(delta)))


def _compute_tuning(term: Term, count: int, delta: float, tuned: Tuning) -> float:
    """The best of a random number of runs, each of `count` releases."""
    if term.mechanism != "gaussian":
        return (2 + tuned.shape) * count * _compute_pure(term)
    if not delta:
        return math.inf
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.dp_event import RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    one = GaussianDpEvent(term.z)
    run = PoissonSampledDpEvent(term.rate, one) if term.sampling == "poisson" else one
    accountant = RdpAccountant()
    accountant.compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(run, count), tuned.mean, tuned.shape))
    return float(accountant.get_epsilon(delta))


def _compute_batches(term: Term, count: int, rate: float, delta: float, attained: bool) -> Interval:
    from fedaudit.audit.claims.shuffling import batches_at_least

    batches = max(1, round(1 / rate))
    upper = closed_form(merge_gaussians({term: math.ceil(count / batches)}), delta)
    known = attained and term.mechanism == "gaussian"
    lower = batches_at_least(term.z, batches, count // batches, delta) if known else 0.0
    return Interval(min(lower, upper), upper, "one release an epoch", "the largest release of each epoch")


def _compute_reports(term: Term, count: int, reports: int, delta: float, attained: bool) -> Interval:
    from fedaudit.audit.claims.shuffling import reports_at_least, reports_at_most

    if term.mechanism == "gaussian":  # what is known of shuffling is about pure reports
        return Interval(
            0.0, closed_form(merge_gaussians({term: count}), delta), "closed form, no credit for shuffling"
        )
    each = _compute_pure(term)
    upper = count * reports_at_most(each, reports, delta / count)
    answers = attained and term.mechanism == "randomized_response"
    lower = reports_at_least(each, reports, delta) if answers else 0.0
    return Interval(min(lower, upper), upper, "Feldman, McMillan and Talwar", "randomised response, counted")
