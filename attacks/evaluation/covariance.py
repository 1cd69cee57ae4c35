"""Covariances of few rows, shrunk towards a multiple of the identity.

Ledoit, Wolf. A well-conditioned estimator for large-dimensional covariance matrices. J. Multivar. Anal. 88, 2004,
eq. 14. The values are scikit-learn's to the last digits, without its seconds of imports and its checks, of which
an attack would wait for thousands.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats

Values = NDArray[np.float64]


def shrink_covariance(rows: Floats, *, has_mean_zero: bool = False) -> Values:
    """[D, D] of rows [n, D]."""
    x = np.asarray(rows, np.float64)
    x = x if has_mean_zero else x - x.mean(axis=0)
    covariance = x.T @ x / len(x)
    level = float(np.trace(covariance)) / x.shape[1]
    weight = _weigh(level, float((covariance**2).sum()), np.einsum("ij,ij->i", x, x), x.shape[1])
    covariance *= 1 - weight
    covariance.flat[:: x.shape[1] + 1] += weight * level
    return np.asarray(covariance)


def factor_covariance(rows: Values) -> tuple[Values, float]:
    """Factor [D, n] and ridge of the same covariance of rows [n, D] with mean 0: factor factor' + ridge I.

    Worked out from products of rows, so that no D by D matrix is made.
    """
    many, width = rows.shape
    gram = rows @ rows.T
    level, squares = float(np.trace(gram)) / (many * width), float((gram**2).sum()) / many**2
    weight = _weigh(level, squares, np.diag(gram), width)
    ridge = max(weight * level, 1e-6 * level, 1e-30)
    return np.asarray(rows.T * math.sqrt(max(1 - weight, 0.0) / many)), ridge


def _weigh(level: float, squares: float, lengths: Values, width: int) -> float:
    """The share of the identity.

    Of a covariance the mean of the diagonal and the sum of all squared entries; of the rows the squared lengths.
    """
    apart = max(squares - width * level**2, 0.0)
    error = max((float((lengths**2).mean()) - squares) / len(lengths), 0.0)
    return min(error, apart) / apart if apart > 0 else 1.0
