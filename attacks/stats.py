"""Intervals, corrections and ROC numbers: the only place where attacks get them.

An interval at 0 % or 100 % never has zero width, and a number that the sample is too small to give
is None. Every function is calibrated on data without an effect in tests/attacks/test_stats.py.
`alpha` is the chance of missing the truth that is allowed to one interval; divide it with
`corrected` where several are compared. Hits may be fractions: tied ranks count in part.
"""

import math
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fedaudit.fl.runtime.distributions import beta_isf, beta_ppf, binom_ppf, norm_isf, t_isf
from fedaudit.fl.threats.threat import Harm

Interval = tuple[float, float]
Floats = NDArray[np.float64]
ALPHA = 0.05
# rates for which thresholds of membership are set; a leak in everybody is seen at the second alone
FALSE_ALARMS = {Harm.MEMBERSHIP: 0.01, Harm.DIFFUSE: 0.1}


class Grouping(Enum):
    """What stands for the groups of trials of which none depends on another."""

    INDEPENDENT = "independent"


INDEPENDENT = Grouping.INDEPENDENT  # whoever writes it says why beside it
Groups = ArrayLike | Grouping  # of each trial, whom it depends on: nearly always its client

FEW_GROUPS = 3  # below, nothing can be said of other groups like these
UNLIKE = 0.1  # of a group, that may be unlike all those seen
MANY_GROUPS = 40  # up to here, intervals are Student's t over groups left out in turn


@dataclass(frozen=True, kw_only=True)
class Estimate:
    value: float
    interval: Interval


@dataclass(frozen=True, kw_only=True)
class Roc:
    """Points of a ROC curve, both coordinates rising from 0 to 1."""

    fpr: Floats
    tpr: Floats


# Formulas of independent trials and repetitions. No attack takes its intervals from them: they ask for no groups.


def wilson(hits: float, trials: float, alpha: float = ALPHA) -> Interval:
    """Score interval of a proportion (Wilson 1927); (0, 1) without trials.

    Too narrow near 0 and 1: at a rate of 1 % in 100 trials its lower end is above the rate in 8 % of
    samples. Against a chance that small use `clopper_pearson`.
    """
    if trials == 0:
        return 0.0, 1.0
    z = norm_isf(alpha / 2)
    p, z2 = hits / trials, z * z / trials
    centre = (p + z2 / 2) / (1 + z2)
    half = z * np.sqrt(p * (1 - p) / trials + z2 / (4 * trials)) / (1 + z2)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def clopper_pearson(hits: float, trials: float, alpha: float = ALPHA) -> Interval:
    """Exact interval of a proportion (Clopper, Pearson 1934); (0, 1) without trials."""
    low = beta_ppf(alpha / 2, hits, trials - hits + 1) if hits > 0 else 0.0
    high = beta_isf(alpha / 2, hits + 1, trials - hits) if hits < trials else 1.0
    return float(low), float(high)


def paired_difference(both: float, first: float, second: float, neither: float, alpha: float = ALPHA) -> Estimate:
    """First proportion minus second, of two yes-or-no answers about the same things.

    `first` counts where the first alone is yes, `second` where the second alone is. Newcombe (Stat. Med. 17,
    1998, pp. 2635-2650), method 10: Wilson intervals squared and added, their correlation corrected for
    continuity. (-1, 1) without trials.
    """
    n = both + first + second + neither
    if n == 0:
        return Estimate(value=0.0, interval=(-1.0, 1.0))
    a, b = both + first, both + second
    (a_low, a_high), (b_low, b_high) = wilson(a, n, alpha), wilson(b, n, alpha)
    margins = float(a) * (n - a) * b * (n - b)
    product = float(both) * neither - float(first) * second
    phi = (max(product - n / 2, 0.0) if product > 0 else product) / math.sqrt(margins) if margins else 0.0
    value = (first - second) / n

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))

    low, high = reach(a / n - a_low, b_high - b / n), reach(a_high - a / n, b / n - b_low)
    return Estimate(value=value, interval=(max(-1.0, value - low), min(1.0, value + high)))


def difference(first: int, trials: int, second: int, others: int, alpha: float = ALPHA) -> Estimate:
    """First proportion minus second, of different things: Wilson intervals squared and added (Newcombe, Stat.
    Med. 17, 1998, pp. 873-890, method 10). (-1, 1) without trials of either.
    """
    if not trials or not others:
        return Estimate(value=0.0, interval=(-1.0, 1.0))
    p, q = first / trials, second / others
    (p_low, p_high), (q_low, q_high) = wilson(first, trials, alpha), wilson(second, others, alpha)
    return Estimate(
        value=p - q,
        interval=(p - q - math.hypot(p - p_low, q_high - q), p - q + math.hypot(p_high - p, q - q_low)),
    )


def t_interval(values: ArrayLike, alpha: float = ALPHA) -> Interval:
    """Student's interval of the mean of independent repetitions; raises ValueError for fewer than two."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        raise ValueError(f"an interval over repetitions needs at least two, got {len(x)}")
    half = t_isf(alpha / 2, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return float(x.mean()) - half, float(x.mean()) + half


# What attacks take, and what all use


def normal_reach(alpha: float = ALPHA) -> float:
    """How many standard deviations a two-sided normal interval reaches to either side."""
    return norm_isf(alpha / 2)


def correct_alpha(alpha: float, looks: int) -> float:
    """Bonferroni: the alpha of each of `looks` intervals so that all hold together."""
    return alpha / max(1, looks)


def mean_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    groups: Groups,
    alpha: float = ALPHA,
    bounds: Interval | None = None,
    resamples: int = 4999,
) -> Interval | None:
    """Interval of a mean; give paired differences for a paired comparison.

    Values of one group depend on each other, so groups are left out or resampled whole; every INDEPENDENT
    value is one. Up to 40 of them: Student's t from the jackknife (Tukey 1958), since a bootstrap of five misses
    the mean of normal values in 14 % of samples for 5 %. More: BCa (Efron 1987), or percentile where a thousand
    values make them the same. Values that are all equal, or of less than 3 groups, tell nothing of their spread:
    then the Wilson interval of a proportion between `bounds` is given, which is wider than that of any variable
    within them, or None where nothing bounds them.
    """
    x = np.asarray(values, dtype=np.float64)
    sums, counts = _by_group(x, groups)
    means = sums / counts
    if len(means) < FEW_GROUPS or np.ptp(means) < 1e-12:
        if bounds is None or len(means) == 0:
            return None
        low, width = bounds[0], bounds[1] - bounds[0]
        a, b = wilson((x.mean() - low) / width * len(means), len(means), alpha)
        return low + width * a, low + width * b
    if len(means) <= MANY_GROUPS:
        without = (sums.sum() - sums) / (counts.sum() - counts)
        reach, middle = _left_out(without, alpha), float(x.mean())
        least, most = bounds or (-math.inf, math.inf)
        return max(least, middle - reach), min(most, middle + reach)

    def statistic(s: Floats, c: Floats, axis: int) -> Floats:
        ratio: Floats = s.sum(axis=axis) / c.sum(axis=axis)
        return ratio

    found: Any = scipy.stats.bootstrap(
        (sums, counts),
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        batch=500,
        confidence_level=1 - alpha,
        method="BCa" if len(sums) <= 1000 else "percentile",
        rng=rng,
    ).confidence_interval
    return float(found.low), float(found.high)


def auc(
    members: ArrayLike, others: ArrayLike, *, groups: tuple[ArrayLike, ArrayLike] | Grouping, alpha: float = ALPHA
) -> Estimate:
    """Area under the ROC curve, ties count half.

    DeLong (1988) variance, in the form of Obuchowski (Biometrics 1997) where scores come in groups
    (`groups`: of members, of others) that depend on each other; up to 40 groups that hold members and others
    alike are left out in turn instead, and less than 3 of those leave all from 0 to 1 possible. The interval is
    taken on the logit scale with Student's t. Perfect separation has no variance: then Clopper-Pearson; over the
    groups, or half an error, of which the logit's deviation is 1 as that of any single event.
    """
    x, y = np.asarray(members, np.float64), np.asarray(others, np.float64)
    m, n = len(x), len(y)
    if m == 0 or n == 0:
        raise ValueError(f"AUC needs scores of both kinds, got {m} members and {n} others")
    order_x, order_y = np.sort(x), np.sort(y)
    # placements: how many of the other sample lie below (DeLong's V10) and above (V01)
    v10 = (np.searchsorted(order_y, x) + np.searchsorted(order_y, x, "right")) / (2 * n)
    v01 = 1 - (np.searchsorted(order_x, y) + np.searchsorted(order_x, y, "right")) / (2 * m)
    area = float(v10.mean())
    each = (np.arange(m), np.arange(m, m + n)) if isinstance(groups, Grouping) else groups
    names, index = np.unique(np.concatenate([np.asarray(g) for g in each]), return_inverse=True)
    a = np.bincount(index[:m], v10 - area, len(names))
    b = np.bincount(index[m:], v01 - area, len(names))
    kx, ky = len(np.unique(index[:m])), len(np.unique(index[m:]))
    least = min(kx, ky)
    if not isinstance(groups, Grouping) and kx == ky == len(names) <= MANY_GROUPS:
        return Estimate(value=area, interval=_grouped_area(x, y, index, area, alpha))
    if area in (0.0, 1.0) or least < 2:
        return Estimate(value=area, interval=clopper_pearson(area * least, least, alpha))
    both = len(names) / (len(names) - 1)
    variance = (
        float(a @ a) * kx / (kx - 1) / m**2
        + float(b @ b) * ky / (ky - 1) / n**2
        + 2 * float(a @ b) * both / (m * n)
    )
    deviation = max(variance, 0.0) ** 0.5 / (area * (1 - area))
    reach = deviation * t_isf(alpha / 2, least - 1)
    logit = scipy.special.logit(area)
    return Estimate(
        value=area,
        interval=(float(scipy.special.expit(logit - reach)), float(scipy.special.expit(logit + reach))),
    )


def _grouped_area(x: Floats, y: Floats, index: NDArray[np.int64], area: float, alpha: float) -> Interval:
    """Interval of an area between scores in few groups; `index`: groups of x, then of y."""
    names = np.unique(index)
    if len(names) < FEW_GROUPS:
        return 0.0, 1.0
    gx, gy = index[: len(x)], index[len(x) :]
    if area in (0.0, 1.0):
        half = float(scipy.special.logit(0.5 / min(len(x), len(y))))
        far = float(scipy.special.expit(half + t_isf(alpha / 2, len(names) - 1)))
        # each of the two ends holds by itself, and neither depends on the scores: the nearer one
        surely = clopper_pearson(len(names), len(names), alpha)[0]
        near = max(1 - far, surely)
        return (near, 1.0) if area else (0.0, 1 - near)
    least = 0.5 / (len(x) * len(y))  # without a group the others may be apart
    # without one group each; their intervals are not used
    areas = np.array([auc(x[gx != g], y[gy != g], groups=INDEPENDENT).value for g in names])
    reach, middle = _left_out(scipy.special.logit(areas.clip(least, 1 - least)), alpha), scipy.special.logit(area)
    low, high = float(scipy.special.expit(middle - reach)), float(scipy.special.expit(middle + reach))
    if len(names) == FEW_GROUPS:  # Student's t of so few is wide enough
        return low, high
    return _with_unlike_group(area, (low, high), _left_out(areas, alpha), len(names), alpha)


def _with_unlike_group(area: float, found: Interval, reach: float, groups: int, alpha: float) -> Interval:
    """The same interval, as far towards 1/2 as with a part of a group more that is at chance.

    Without the rare group unlike the others a sample has too extreme an area, too small a variance: of simulated
    lower ends (AUC .93, .985, deviation 1.5, 4 to 40 groups) 6 to 13 % lie above the truth without this, 0 to 6
    with it; of 3 groups 1 %. `reach` is that of areas; the part a tenth, or a hundredth of all.
    """
    share = max(UNLIKE / (groups + UNLIKE), UNLIKE / (10 + UNLIKE))
    shrunk = area + share * (0.5 - area)
    further = share * abs(area - 0.5) * t_isf(alpha / 2, groups - 1)
    wide, (low, high) = math.hypot(reach, further) / (shrunk * (1 - shrunk)), found
    far = float(scipy.special.expit(scipy.special.logit(shrunk) + (wide if area < 0.5 else -wide)))
    return (min(low, far), high) if area > 0.5 else (low, max(high, far))


def roc(members: ArrayLike, others: ArrayLike) -> Roc:
    """The ROC curve of two samples of scores, higher for members."""
    from sklearn.metrics import roc_curve

    x, y = np.asarray(members, np.float64), np.asarray(others, np.float64)
    truth = np.r_[np.ones(len(x)), np.zeros(len(y))]
    fpr, tpr, _ = roc_curve(truth, np.r_[x, y])
    return Roc(fpr=fpr, tpr=tpr)


def tpr_at_fpr(
    members: ArrayLike,
    others: ArrayLike,
    fpr: float,
    *,
    groups: tuple[ArrayLike, ArrayLike] | Grouping,
    alpha: float = ALPHA,
) -> Estimate | None:
    """True-positive rate at a false-positive rate; None where fewer than 1/fpr negatives exist.

    Half of alpha goes to the threshold (the order statistics of the negatives between which the
    wanted quantile lies), half to the hits at it (Clopper-Pearson). No distribution is assumed;
    samples in groups count as fewer, as in `bound_share`. `negatives_needed` says from how many negatives on the
    lower end can be above `fpr`.
    """
    x, y = np.asarray(members, np.float64), np.sort(np.asarray(others, np.float64))[::-1]
    if len(x) == 0 or fpr * len(y) < 1:
        return None
    gx, gy = (groups, groups) if isinstance(groups, Grouping) else groups
    cut = y[int(fpr * len(y))] if int(fpr * len(y)) < len(y) else -np.inf
    size = max(1, int(_independent(np.asarray(others) > cut, gy, alpha)))
    # ranks, from the top, that bracket the wanted quantile with confidence 1 - alpha / 2
    reach = partial(binom_ppf, n=size, p=fpr)
    few, many = (reach(a) * len(y) / size for a in (alpha / 4, 1 - alpha / 4))
    strict = y[int(few) - 1] if few >= 1 else np.inf
    loose = y[min(len(y) - 1, int(np.ceil(many)))]
    low, _ = bound_share(x > strict, gx, alpha / 2)
    _, high = bound_share(x > loose, gx, alpha / 2)
    value = float((x > cut).mean())
    return Estimate(value=value, interval=(min(low, value), max(high, value)))


def count_needed_negatives(fpr: float, alpha: float = ALPHA, groups: int | None = None) -> int | None:
    """Negatives from which on `tpr_at_fpr` can show more than chance at all, however good the attack.

    The strictest of n negatives is above the wanted quantile with a chance of (1 - fpr) ** n, which alpha / 4
    must exceed: 437 at 1 % and 95 %. In few groups more are needed, and in less than 3 none
    suffice.
    """
    if groups is not None and groups < FEW_GROUPS:
        return None
    alone = math.ceil(math.log(alpha / 4) / math.log1p(-fpr))
    return math.ceil(alone * _compute_design_effect(groups, alpha))


def bound_share(hits: ArrayLike, groups: Groups, alpha: float = ALPHA) -> Interval:
    """Interval of the share of true `hits`; (0, 1) without trials, or with trials in less than 3 groups.

    Clopper-Pearson. Trials in groups that depend on each other count as fewer: divided by their design effect
    (Kish 1965), which few groups tell badly, and so by the square of Student's t over the normal quantile too
    (Korn, Graubard, Survey Methodology 1998). Groups of one trial each are independent trials.
    """
    x = np.asarray(hits, dtype=np.float64)
    trials = _independent(x, groups, alpha) if len(x) else 0.0
    return clopper_pearson(float(x.mean()) * trials, trials, alpha) if trials else (0.0, 1.0)


def residual_risk(
    hits: ArrayLike, control: ArrayLike, *, groups: tuple[Groups, Groups], alpha: float = ALPHA
) -> Estimate | None:
    """R = (main - control) / (1 - control): success beyond what the control explains.

    Anonymeter's residual (Giomi et al., PoPETs 2023, eq. 5), of the hits of the attack and of the control and the
    groups of both. The ends of their intervals are propagated each on its own side (Newcombe 1998), because near
    0 % and 100 % they are lopsided. None where the control always succeeds or has no trials.
    """
    x, y = np.asarray(hits, np.float64), np.asarray(control, np.float64)
    if not len(x) or not len(y) or y.mean() >= 1:
        return None
    gx, gy = groups
    p, q = float(x.mean()), float(y.mean())
    (p_low, p_high), (q_low, q_high) = bound_share(x, gx, alpha), bound_share(y, gy, alpha)
    by_p, by_q = 1 / (1 - q), (1 - p) / (1 - q) ** 2  # partial derivatives of R, without sign
    value = (p - q) / (1 - q)
    low = value - math.hypot(by_p * (p - p_low), by_q * (q_high - q))
    high = value + math.hypot(by_p * (p_high - p), by_q * (q - q_low))
    return Estimate(value=value, interval=(low, min(1.0, high)))


def _by_group(x: Floats, groups: Groups) -> tuple[Floats, Floats]:
    """Sum and size of each group."""
    if isinstance(groups, Grouping):
        return x, np.ones_like(x)
    _, index = np.unique(np.asarray(groups), return_inverse=True)
    return np.bincount(index, x).astype(np.float64), np.bincount(index).astype(np.float64)


def _left_out(without: ArrayLike, alpha: float) -> float:
    """How far an interval reaches to either side, from the estimates without each group in turn."""
    each = np.asarray(without, np.float64)
    k = len(each)
    deviation = math.sqrt((k - 1) / k * float(((each - each.mean()) ** 2).sum()))
    return deviation * t_isf(alpha / 2, k - 1)


def _compute_design_effect(groups: int | None, alpha: float) -> float:
    """By how much fewer trials few groups are worth, whatever is in them."""
    return 1.0 if groups is None else t_isf(alpha / 2, groups - 1) ** 2 / normal_reach(alpha) ** 2


def _independent(hits: ArrayLike, groups: Groups, alpha: float) -> float:
    """How many independent trials these are worth; 0 where less than 3 groups say nothing of others."""
    x = np.asarray(hits, dtype=np.float64)
    if isinstance(groups, Grouping):
        return float(len(x))
    sums, counts = _by_group(x, groups)
    if len(sums) == len(x):  # a trial each: nothing depends on anything
        return float(len(x))
    rate, k = float(x.mean()), len(sums)
    if k < FEW_GROUPS:
        return 0.0
    effect = 1.0
    if 0 < rate < 1:
        variance = k / (k - 1) * float(((sums - rate * counts) ** 2).sum())
        effect = max(1.0, variance / (len(x) * rate * (1 - rate)))
    return len(x) / (effect * _compute_design_effect(k, alpha))


def choose_threshold_rank(non_members: int, false_alarms: float) -> int:
    """Which of the largest scores of non-members the threshold of membership is, counted from 1.

    Whoever scores above it is flagged, of non-members a share of `false_alarms` at most. Raises ValueError
    without non-members.
    """
    if non_members < 1:
        raise ValueError(f"a threshold needs non-members, got {non_members}")
    return math.ceil(false_alarms * non_members)
