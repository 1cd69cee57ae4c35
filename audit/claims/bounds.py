"""What a setting costs, from both sides: an upper bound that holds, and a lower one that refutes.

| releases | at most | at least |
|---|---|---|
| Gaussian, not sampled, also in trees; one Laplace | closed form | the same |
| several of Laplace, discrete Laplace, randomised response | PLD | PLD, optimistic grid |
| Poisson | PLD | PLD, optimistic grid; the chance to be in the first releases |
| a fixed number: replaced, added, removed | WOR-PLD, replaced | Poisson at that z: all others -C, the target +C |
| a fixed number: zeroed out | WOR-PLD, replaced; closed form | its own pair, PLD, optimistic grid |
| shuffled batches, shuffled reports | audit/claims/shuffling.py | the same |
| the best of several runs of pure noise | (2 + eta) epsilon (Papernot, Steinke. arXiv:2110.03620) | one run |

A lower bound needs neighbours that differ by the whole sensitivity. Where a setting says that its sensitivity may
be loose, or states an epsilon without its mechanism, there is none.
"""

import contextlib
import math
import sys
from typing import NamedTuple

from fedaudit.audit.accounting.accountants.auto import choose_engine
from fedaudit.audit.accounting.accountants.exact import closed_form
from fedaudit.audit.accounting.below import tell_apart
from fedaudit.audit.accounting.terms import Term, drop_sampling, merge_gaussians
from fedaudit.audit.claims.claim import Claim
from fedaudit.audit.claims.setting import Noised, Setting, assume_noise

NO_DELTA = "Gaussian noise at delta 0"
GRID = "PLD, optimistic grid"
OUT_OF_RANGE = "numbers too large or too small to compute with"
FINEST, FINE = 1e-4, 1e-5  # grid of losses, where a bound from below is composed


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
        best = (2 + s.tuned.shape) * count * _compute_pure(one.term)
        return Interval(0.0, best, "tuning by Papernot and Steinke")
    if s.shuffled is not None:
        return _compute_reports(one.term, count, s.shuffled, delta, attained)
    if s.batches is not None:
        return _compute_batches(one.term, count, s.batches, delta, attained)
    counts = merge_gaussians({one.term: count})
    upper, how = closed_form(drop_sampling({one.in_full or one.term: count}), delta), "closed form"
    engine = choose_engine(counts, delta)
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
    return Interval(min(upper, lower), upper, how, GRID)


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
            below, by = max((below, by), (tell_apart({one.floor: count}, delta, found.upper, (2.0, 1.0)), GRID))
    # engines that contradict each other show nothing
    return found._replace(lower=below, below=by) if below <= found.upper else found


def _has_equality(claim: Claim, s: Setting) -> bool:
    answers = (s.mechanism or claim.mechanism) == "randomized_response"
    return s.attained and (s.epsilon is None or answers)


def _bound_below(term: Term, count: int, delta: float, upper: float) -> tuple[float, str]:
    if term.mechanism != "gaussian" or not delta:
        return _compute_optimistic(term, count, delta), GRID
    if not term.sampled:
        return closed_form(merge_gaussians({term: count}), delta), "closed form"
    return max(
        (tell_apart({term: count}, delta, upper), GRID),
        (taken_part(term, count, delta), "the chance to be in the first releases"),
    )


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


def _compute_batches(term: Term, count: int, batches: int, delta: float, attained: bool) -> Interval:
    from fedaudit.audit.claims.shuffling import batches_at_least

    upper = closed_form(merge_gaussians({term: math.ceil(count / batches)}), delta)
    known = attained and term.mechanism == "gaussian"
    lower = batches_at_least(term.z, batches, count // batches, delta) if known else 0.0
    return Interval(min(lower, upper), upper, "one release an epoch", "the largest release of each epoch")


def _compute_reports(term: Term, count: int, reports: int, delta: float, attained: bool) -> Interval:
    from fedaudit.audit.claims.shuffling import reports_at_least, reports_at_most

    each = _compute_pure(term)
    upper = count * reports_at_most(each, reports, delta / count)
    answers = attained and term.mechanism == "randomized_response"
    lower = reports_at_least(each, reports, delta) if answers else 0.0
    return Interval(min(lower, upper), upper, "Feldman, McMillan and Talwar", "randomised response, counted")
