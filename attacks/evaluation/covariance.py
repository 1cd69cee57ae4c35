"""Covariances of few rows, shrunk towards a multiple of the identity.

Ledoit, Wolf. A well-conditioned estimator for large-dimensional covariance matrices. J. Multivar. Anal. 88, 2004,
eq. 14.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats

Values = NDArray[np.float64]


def shrink_covariance(rows: Floats, *, has_mean_zero: bool = False) -> Values:
    """[D, D] of rows [n, D]."""
    from sklearn.covariance import ledoit_wolf

    return np.asarray(ledoit_wolf(np.asarray(rows, np.float64), assume_centered=has_mean_zero)[0])


def factor_covariance(rows: Values) -> tuple[Values, float]:
    """Factor [D, n] and ridge of the same covariance of rows [n, D] with mean 0: factor factor' + ridge I.

    Worked out from products of rows, so that no D by D matrix is made, which scikit-learn does.
    """
    many, width = rows.shape
    gram = rows @ rows.T
    level, squares = float(np.trace(gram)) / (many * width), float((gram**2).sum()) / many**2
    apart = max(squares - width * level**2, 0.0)
    error = max((float((np.diag(gram) ** 2).sum()) / many - squares) / many, 0.0)
    weight = min(error, apart) / apart if apart > 0 else 1.0
    ridge = max(weight * level, 1e-6 * level, 1e-30)
    return np.asarray(rows.T * math.sqrt(max(1 - weight, 0.0) / many)), ridge
