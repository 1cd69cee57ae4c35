"""Bootstrap intervals of a ratio of sums: BCa (Efron 1987), or percentile.

The numbers are those of scipy.stats.bootstrap, whose import takes each process of an audit most of a second.
"""

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.fl.runtime.distributions import norm_ppf

Floats = NDArray[np.float64]
AT_ONCE = 500  # resamples


def bootstrap_ratio(
    sums: Floats, counts: Floats, rng: np.random.Generator, *, resamples: int, alpha: float, corrects: bool
) -> tuple[float, float]:
    """Interval of sum(sums) / sum(counts) of independent pairs; `corrects`: for bias and acceleration."""
    ratios = []
    for begin in range(0, resamples, AT_ONCE):
        rows = rng.integers(0, len(sums), (min(AT_ONCE, resamples - begin), len(sums)))
        ratios.append(sums[rows].sum(axis=1) / counts[rows].sum(axis=1))
    found, levels = np.concatenate(ratios), np.array([alpha / 2, 1 - alpha / 2])
    if corrects:
        ratio = sums.sum() / counts.sum()
        below = float((found < ratio).mean() + (found <= ratio).mean()) / 2
        if 0 < below < 1:
            bias, reach = norm_ppf(below), norm_ppf(alpha / 2)
            moved = bias + np.array([reach, -reach])
            levels = scipy.special.ndtr(bias + moved / (1 - _accelerate(sums, counts) * moved))
    low, high = np.quantile(found, levels)
    return float(low), float(high)


def _accelerate(sums: Floats, counts: Floats) -> float:
    """A sixth of the skewness of the jackknife."""
    without = (sums.sum() - sums) / (counts.sum() - counts)
    moved = without.mean() - without
    return float((moved**3).sum() / (moved**2).sum() ** 1.5 / 6)
