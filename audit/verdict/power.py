"""Power: the smallest leak that the policy's own rules would have demonstrated, by enumeration.

The chance that a rule holds is a sum over what the attack and a baseline may have got,

    sum over k, y of Bin(k; n, p) Bin(y; m, b) [the rule holds for k of n beside y of m],

with the intervals that the evidence has: Clopper-Pearson, corrected for its comparisons. Trials of one client
depend on each other: n and m are those of independent trials with intervals as wide (Kish's effective size). An
area under a ROC curve is no share of trials: its logit is taken as normal, with the reach of its interval.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.stats import correct_alpha, normal_reach
from fedaudit.audit.verdict.policy import Condition, GradingPolicy
from fedaudit.audit.verdict.statistics import compute_statistic
from fedaudit.fl.runtime.distributions import beta_isf, beta_ppf, binom_pmf, binom_sf, norm_ppf

Floats = NDArray[np.float64]
Holds = Callable[[Floats, Floats, Floats, Floats], NDArray[np.bool_]]  # of a value, its end, a blind one, its end

POWER = 0.8
AREAS = ("auc", "label_auc", "property_auc")
MOST = 5000  # more trials than these are counted as these, which errs on the safe side
_RARE = 1e-12  # results of the baseline that are left out, in all


def find_detectable(evidence: Iterable[Evidence], policy: GradingPolicy) -> float:
    """The residual risk that some measure would have shown in four of five audits, at the worst place.

    Infinity where one place could have shown nothing, or there is none.
    """
    places: dict[str, float] = {}
    for e in evidence:
        places[e.place] = min(places.get(e.place, math.inf), _find_detectable(e, policy))
    return max(places.values(), default=math.inf)


def _find_detectable(e: Evidence, policy: GradingPolicy) -> float:
    """Of one evidence; infinity where no rule could hold for it alone."""
    if e.interval is None or e.unit != "fraction" or not e.higher_is_worse or not math.isfinite(e.value):
        return math.inf
    holds = _choose_rules(e, policy)
    if not holds or not e.baselines:
        return math.inf
    alpha = correct_alpha(1 - e.confidence, e.looks)
    if e.measure in AREAS:
        return max(min(_find_area(e.interval, b, alpha, one) for one in holds) for b in e.baselines)
    trials = count_effective(e.value, e.interval, e.trials, alpha)
    return max(_find_beside(b, trials, e.trials, alpha, holds) for b in e.baselines)


def _find_beside(b: Baseline, trials: int, most: int, alpha: float, holds: Sequence[Holds]) -> float:
    if b.value >= 1:
        return math.inf
    others = count_effective(b.value, b.interval, 100 * most, alpha) if b.interval else 0
    is_exact = b.interval is None
    return min(
        find_residual_risk(trials, b.value, others, alpha=alpha, holds=one, exact=is_exact) for one in holds
    )


def _find_area(interval: tuple[float, float], b: Baseline, alpha: float, holds: Holds) -> float:
    """Of an area whose logit is normal: of 100 audits 80 measure one at which the rule holds."""
    if b.value >= 1:
        return math.inf
    low, high = (float(scipy.special.logit(min(max(end, 1e-9), 1 - 1e-9))) for end in interval)
    reach = (high - low) / 2
    unlucky = reach / normal_reach(alpha) * norm_ppf(POWER)
    blind = np.array([b.value]), np.array([b.interval[1] if b.interval else b.value])

    def is_shown(p: float) -> bool:
        measured = float(scipy.special.logit(p)) - unlucky
        value, end = (np.array([float(scipy.special.expit(x))]) for x in (measured, measured - reach))
        return bool(holds(value, end, *blind).all())

    least, most = b.value, 1 - 1e-9
    if not is_shown(most):
        return math.inf
    while most - least > 1e-7:
        middle = (least + most) / 2
        least, most = (least, middle) if is_shown(middle) else (middle, most)
    return (most - b.value) / (1 - b.value)


def _choose_rules(e: Evidence, policy: GradingPolicy) -> list[Holds]:
    """The rules that this evidence alone can meet."""
    return [
        _all_hold(rule.all)
        for rule in policy.rules
        if all(fnmatchcase(e.measure, c.measure) and (not c.units or e.unit in c.units) for c in rule.all)
    ]


def _all_hold(conditions: Sequence[Condition]) -> Holds:
    def hold(value: Floats, end: Floats, blind: Floats, blind_end: Floats) -> NDArray[np.bool_]:
        met = np.ones(np.broadcast_shapes(value.shape, blind.shape), np.bool_)
        for c in conditions:
            number = compute_statistic(c.statistic, value, end, blind, blind_end)
            met &= number >= c.at_least if c.at_least is not None else number > c.above
        return met

    return hold


def is_clear(value: Floats, end: Floats, blind: Floats, blind_end: Floats) -> NDArray[np.bool_]:
    """Clear of the baseline: the excess is above 0."""
    return np.asarray(compute_statistic("excess", value, end, blind, blind_end) > 0)


def compute_power(
    p: float,
    trials: int,
    blind: float,
    blind_trials: int,
    *,
    alpha: float,
    holds: Holds = is_clear,
    exact: bool = False,
) -> float:
    """Chance that a rule holds where the attack is right at a rate p and guessing at a rate `blind`.

    `exact`: the rate of guessing is known, and has no interval.
    """
    least, weight = _find_least(trials, blind, blind_trials, alpha, holds, exact)
    return float(weight @ binom_sf(least - 1, trials, p))


def find_residual_risk(
    trials: int, blind: float, blind_trials: int, *, alpha: float, holds: Holds = is_clear, exact: bool = False
) -> float:
    """The smallest (p - blind) / (1 - blind) that is shown with a chance of 80 %; infinity where none is."""
    least, weight = _find_least(trials, blind, blind_trials, alpha, holds, exact)
    if weight[least <= trials].sum() < POWER:
        return math.inf
    low, high = blind, 1.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        enough = weight @ binom_sf(least - 1, trials, middle) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return (high - blind) / (1 - blind)


def _find_least(
    trials: int, blind: float, blind_trials: int, alpha: float, holds: Holds, exact: bool
) -> tuple[Floats, Floats]:
    """For each result of the baseline the least hits for which the rule holds (trials + 1: none), and how
    likely that result is. The more hits, the sooner a rule holds.
    """
    if exact:
        guessed, weight, ends = np.array([blind]), np.ones(1), np.array([blind])
    else:
        y = np.arange(blind_trials + 1.0)
        weight = binom_pmf(y, blind_trials, blind)
        y, weight = y[weight > _RARE / len(y)], weight[weight > _RARE / len(y)]
        guessed, ends = y / max(1, blind_trials), _upper_ends(y, blind_trials, alpha)
    low, high = np.zeros(len(guessed)), np.full(len(guessed), trials + 1.0)
    while (low < high).any():
        middle = np.floor((low + high) / 2)
        hits = np.minimum(middle, trials)
        value = hits / max(1, trials)
        held = holds(value, _lower_ends(hits, trials, alpha), guessed, ends) & (middle <= trials)
        low, high = np.where(held | (low >= high), low, middle + 1), np.where(held, middle, high)
    return low, weight


def count_effective(value: float, interval: tuple[float, float], trials: int, alpha: float) -> int:
    """So many independent trials have an interval as wide as this one, at most `trials` and `MOST`."""
    wide = interval[1] - interval[0]
    low, high = 0, min(trials, MOST)
    while low < high:
        middle = (low + high + 1) // 2
        hits = np.array([value * middle])
        width = float((_upper_ends(hits, middle, alpha) - _lower_ends(hits, middle, alpha))[0])
        low, high = (middle, high) if width >= wide - 1e-9 else (low, middle - 1)
    return low


def _lower_ends(hits: Floats, trials: int, alpha: float) -> Floats:
    """Clopper-Pearson."""
    some = np.maximum(hits, 1e-9)
    return np.where(hits > 0, beta_ppf(alpha / 2, some, trials - hits + 1), 0.0)


def _upper_ends(hits: Floats, trials: int, alpha: float) -> Floats:
    rest = np.maximum(trials - hits, 1e-9)
    return np.where(hits < trials, beta_isf(alpha / 2, hits + 1, rest), 1.0)
