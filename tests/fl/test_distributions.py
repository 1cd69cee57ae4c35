"""The few distributions that readers need are those of scipy.stats, to the bit."""

import numpy as np
import pytest
import scipy.stats

from fedaudit.fl.runtime import distributions

RATES = (0.0, 1e-12, 0.03, 0.3, 0.5, 0.97, 1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100, 5000])
def test_binomial_tails(n: int) -> None:
    k = np.unique(np.linspace(-2, n + 2, 300).round())
    inside = k[(k >= 0) & (k <= n)]
    for p in RATES:
        assert np.array_equal(distributions.binom_sf(k, n, p), scipy.stats.binom.sf(k, n, p))
        assert np.array_equal(distributions.binom_cdf(k, n, p), scipy.stats.binom.cdf(k, n, p))
        assert np.array_equal(distributions.binom_pmf(inside, n, p), scipy.stats.binom.pmf(inside, n, p))
        if n:
            for q in (1e-6, 0.0125, 0.95, 0.9875):
                assert distributions.binom_ppf(q, n, p) == scipy.stats.binom.ppf(q, n, p)


@pytest.mark.parametrize(("of", "drawn"), [(1, 1), (20, 3), (20, 13), (5000, 400)])
def test_hypergeometric_chances(of: int, drawn: int) -> None:
    k = np.arange(drawn + 1)
    expected = scipy.stats.hypergeom.logpmf(k, of, drawn, drawn)
    assert np.array_equal(distributions.hypergeom_logpmf(k, of, drawn, drawn), expected)


def test_points_of_students_t() -> None:
    for q in (1e-9, 0.001, 0.025, 0.3, 0.5, 0.9):
        for freedom in (1, 2, 7, 39, 1000):
            assert distributions.t_isf(q, freedom) == scipy.stats.t.isf(q, freedom)


def test_beta_quantiles_and_tails() -> None:
    rng = np.random.default_rng(0)
    q = rng.random(500) * rng.choice([1e-6, 0.01, 1], 500)
    a, b = (rng.random(500) * rng.choice([1, 50, 5000], 500) + 1e-9 for _ in range(2))
    for name in ("ppf", "isf", "sf"):
        expected = getattr(scipy.stats.beta, name)(q, a, b)
        assert np.array_equal(getattr(distributions, f"beta_{name}")(q, a, b), expected)


def test_normal_quantiles() -> None:
    for q in np.linspace(0.001, 0.999, 57).tolist():
        assert distributions.norm_ppf(q) == scipy.stats.norm.ppf(q)
        assert distributions.norm_isf(q) == scipy.stats.norm.isf(q)


@pytest.mark.parametrize("n", [1, 12, 300])
def test_quantiles_of_the_beta_binomial(n: int) -> None:
    for number in (20, 180):
        for rank in (1, 3, number // 2):
            expected = scipy.stats.betabinom.ppf(0.95, n, rank, number - rank + 1)
            assert distributions.betabinom_ppf(0.95, n, rank, number - rank + 1) == expected
