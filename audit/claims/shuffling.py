"""What shuffling is worth: batches that are shuffled, and local reports that a shuffler mixes.

Shuffled batches have no tight analysis. Not crediting them is an upper bound: a unit is in one batch an epoch.
A lower one (after Chua et al. arXiv:2403.17673, sec. 4): the others contribute nothing, the target +C to one of T
batches. Whether the largest of an epoch's T releases exceeds a threshold is a coin with other odds without the
target; how many of E epochs show it is binomial, and every event bounds epsilon from below.
"""

import math

import numpy as np
import scipy

THRESHOLDS, COUNTS = 200, 400  # tried; each gives a valid bound, more of them a tighter one


def batches_at_least(z: float, batches: int, epochs: int, delta: float) -> float:
    """epsilon of `epochs` epochs of `batches` shuffled Gaussian releases is no smaller."""
    if not epochs:
        return 0.0
    over = np.linspace(0, 8 * z + 1, THRESHOLDS)
    others = (batches - 1) * scipy.special.log_ndtr(over / z)
    there = -np.expm1(others + scipy.special.log_ndtr((over - 1) / z))
    absent = -np.expm1(others + scipy.special.log_ndtr(over / z))
    seen = np.unique(np.linspace(0, epochs - 1, min(epochs, COUNTS), dtype=int))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        gained = np.log(scipy.stats.binom.sf(seen, epochs, there) - delta) - scipy.stats.binom.logsf(
            seen, epochs, absent
        )
    return max(0.0, float(np.max(gained[np.isfinite(gained)], initial=0.0)))


def reports_at_most(epsilon: float, reports: int, delta: float) -> float:
    """epsilon of one of `reports` shuffled local reports of pure `epsilon` each, which too few leave as it is.

    Feldman, McMillan, Talwar. arXiv:2012.12803, Thm 3.1.
    """
    if not delta or epsilon > math.log(reports / (16 * math.log(2 / delta))):
        return epsilon
    odds = math.exp(epsilon)
    inner = 8 * math.sqrt(odds * math.log(4 / delta)) / math.sqrt(reports) + 8 * odds / reports
    return min(epsilon, math.log1p((odds - 1) / (odds + 1) * inner))


def reports_at_least(epsilon: float, reports: int, delta: float) -> float:
    """epsilon of how many ones shuffled binary randomised responses hold, where all others are 0: exact."""
    lie = 1 / (1 + math.exp(min(epsilon, 700.0)))
    others = scipy.stats.binom.pmf(np.arange(reports), reports - 1, lie)
    same, more = np.append(others, 0), np.insert(others, 0, 0)  # the target's answer adds 0, or 1
    zero, one = (1 - lie) * same + lie * more, lie * same + (1 - lie) * more

    def excess(tried: float) -> float:
        pairs = ((zero, one), (one, zero))
        return max(float(np.maximum(p - math.exp(tried) * q, 0).sum()) for p, q in pairs) - delta

    if excess(0.0) <= 0:
        return 0.0
    return epsilon if excess(epsilon) >= 0 else float(scipy.optimize.brentq(excess, 0.0, epsilon))
