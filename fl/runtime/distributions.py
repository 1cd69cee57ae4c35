"""Tails and quantiles of distributions, to the bit those of scipy.stats, without its import.

scipy.stats takes most of a second to import, and a reader of a finished run needs these few functions alone.
"""

from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def beta_ppf(q: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """The point below which a share q lies; a and b above 0."""
    return np.asarray(_exact()._beta_ppf(q, a, b))


def beta_isf(q: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """The point above which a share q lies."""
    return np.asarray(_exact().betainccinv(a, b, q))


def binom_pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """Chance of k, a whole number from 0 to n."""
    return np.asarray(_exact()._binom_pmf(k, n, p))


def binom_sf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """Chance of more than k; k may lie outside of 0 to n."""
    k, n, p = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (k, n, p)))
    inside = np.clip(np.floor(k), 0, n)
    tail = np.clip(_exact()._binom_sf(inside, n, p), 0, 1)
    return np.where(k < 0, 1.0, np.where(k >= n, 0.0, tail))


def binom_cdf(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """Chance of k or less."""
    k, n, p = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (k, n, p)))
    inside = np.clip(np.floor(k), 0, n)
    tail = np.clip(_exact()._binom_cdf(inside, n, p), 0, 1)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, tail))


def beta_sf(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Chance of more than x, from 0 to 1."""
    return np.asarray(_exact().betaincc(a, b, x))


def binom_ppf(q: float, n: float, p: float) -> float:
    """The least k that is not exceeded with a chance of q, between 0 and 1."""
    return float(_exact()._binom_ppf(q, n, p))


def t_isf(q: float, freedom: float) -> float:
    """The point above which a share q of Student's t with so many degrees of freedom lies."""
    return -float(scipy.special.stdtrit(freedom, q))


def hypergeom_logpmf(k: ArrayLike, of: int, marked: int, drawn: int) -> Floats:
    """Log chance of k marked ones, a whole number from 0 to `drawn`, among so many drawn; drawn <= marked."""
    k, betaln = np.asarray(k, np.float64), scipy.special.betaln
    bad = of - marked
    ways = betaln(marked + 1, 1) + betaln(bad + 1, 1) + betaln(of - drawn + 1, drawn + 1)
    with np.errstate(invalid="ignore"):
        log = ways - betaln(k + 1, marked - k + 1) - betaln(drawn - k + 1, bad - drawn + k + 1)
    return np.where(k < drawn - bad, -np.inf, log - betaln(of + 1, 1))


def norm_ppf(q: float) -> float:
    """The point below which a share q of the normal distribution lies."""
    return float(scipy.special.ndtri(q))


def norm_isf(q: float) -> float:
    """The point above which a share q of the normal distribution lies."""
    return -float(scipy.special.ndtri(q))


def betabinom_ppf(q: float, n: int, a: float, b: float) -> int:
    """The least k that is not exceeded with a chance of q, where a chance from Beta(a, b) is met n times."""
    k = np.arange(n + 1.0)
    log_pmf = -np.log(n + 1) - scipy.special.betaln(n - k + 1, k + 1) + scipy.special.betaln(k + a, n - k + b)
    return min(n, int(np.searchsorted(np.cumsum(np.exp(log_pmf - scipy.special.betaln(a, b))), q)))


def _exact() -> Any:
    """What scipy.stats itself calls."""
    return scipy.special._ufuncs
