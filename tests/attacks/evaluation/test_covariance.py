"""Shrunken covariances are scikit-learn's."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from fedaudit.attacks.evaluation.covariance import factor_covariance, shrink_covariance

SIZES = [(12, 5), (30, 30), (16, 200), (9, 1), (1, 6)]


def draw(many: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(many)
    return rng.normal(size=(many, width)) * np.linspace(0.1, 3, width) + 0.5


@pytest.mark.parametrize(("many", "width"), SIZES)
@pytest.mark.parametrize("has_mean_zero", [False, True])
@pytest.mark.filterwarnings("ignore:Only one sample")
def test_the_shrunken_covariance_is_that_of_scikit_learn(many: int, width: int, has_mean_zero: bool) -> None:
    rows = draw(many, width)
    expected, _ = ledoit_wolf(rows, assume_centered=has_mean_zero)
    found = shrink_covariance(rows, has_mean_zero=has_mean_zero)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("many", "width"), SIZES[:3])
def test_a_factor_and_a_ridge_make_the_same(many: int, width: int) -> None:
    rows = draw(many, width)
    factor, ridge = factor_covariance(rows)
    expected = shrink_covariance(rows, has_mean_zero=True)
    np.testing.assert_allclose(factor @ factor.T + ridge * np.eye(width), expected, rtol=1e-6, atol=1e-9)


def test_rows_that_are_all_alike_have_no_covariance() -> None:
    assert (shrink_covariance(np.ones((7, 3), np.float32)) == 0).all()
