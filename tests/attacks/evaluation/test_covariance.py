"""A factor and a ridge are scikit-learn's shrunken covariance."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.covariance import factor_covariance, shrink_covariance


@pytest.mark.parametrize(("many", "width"), [(12, 5), (30, 30), (16, 200)])
def test_a_factor_and_a_ridge_make_the_same(many: int, width: int) -> None:
    rng = np.random.default_rng(many)
    rows = rng.normal(size=(many, width)) * np.linspace(0.1, 3, width) + 0.5
    factor, ridge = factor_covariance(rows)
    expected = shrink_covariance(rows, has_mean_zero=True)
    np.testing.assert_allclose(factor @ factor.T + ridge * np.eye(width), expected, rtol=1e-6, atol=1e-9)
