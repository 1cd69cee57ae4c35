"""The exact accountant: published values, an independent bisection, identities and refusals."""

import math
from collections.abc import Sequence

import pytest
from scipy.stats import norm

from fedaudit.audit.accounting.accountant import NOTHING, Bound
from fedaudit.audit.accounting.accountants.exact import Exact, gaussian
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.errors import UserError


def release(z: float = 1.0, **changes: object) -> Release:
    fields: dict[str, object] = {
        "round": 0,
        "kind": "model_delta",
        "sender": "client/0",
        "observers": ("server",),
        "mechanism": "gaussian",
        "noise_std": z,
        "sensitivity": 1.0,
    }
    return Release(**(fields | changes))  # type: ignore[arg-type]


def epsilon(releases: Sequence[Release], delta: float = 1e-5) -> Bound:
    return Exact().epsilon(releases, delta)


def by_bisection(mu: float, delta: float) -> float:
    """Balle and Wang, Theorem 8, solved with scipy's log-probabilities: the second source."""

    def log_delta(eps: float) -> float:
        first = norm.logcdf(mu / 2 - eps / mu)
        second = eps + norm.logcdf(-mu / 2 - eps / mu)
        return float(first + math.log1p(-math.exp(min(second - first, -1e-300))))

    low, high = 0.0, 1.0
    while log_delta(high) > math.log(delta):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) > math.log(delta) else (low, middle)
    return high


# (z, releases, delta, epsilon), computed with other programs when the accounting was specified
GOLDEN = [
    (1.0, 1, 1e-5, 4.377178),
    (4.844805, 1, 1e-5, 0.750977),
    (50.0, 2000, 1e-5, 3.848610),
    (1.0, 2000, 1e-5, 1189.7767),
    (1e-5, 1, 1e-5, 5.0004265e9),
    (1e-1, 1, 1e-5, 91.82),
    (1.0, 40, 1e-5, 46.21),
    (1.0, 1, 0.01, 2.3178),
    (1.0, 202, 0.01, 133.14),
    (0.0025, 1, 0.01, 80929.5),
    (0.005, 1, 0.01, 20464.0),
    (3.730631634816, 1, 1e-5, 1.0),
]


@pytest.mark.parametrize(("z", "count", "delta", "expected"), GOLDEN)
def test_gaussian_releases_have_the_published_epsilon(
    z: float, count: int, delta: float, expected: float
) -> None:
    assert epsilon([release(z)] * count, delta).epsilon == pytest.approx(expected, rel=5e-5)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
def test_it_agrees_with_an_independent_bisection(mu: float, delta: float) -> None:
    assert gaussian(mu, delta) == pytest.approx(by_bisection(mu, delta), rel=1e-6, abs=1e-9)


def test_the_tail_bound_of_a_large_mu_is_never_below_the_exact_value() -> None:
    import dp_accounting

    for mu in (1.1e4, 1e5):
        exact = dp_accounting.get_epsilon_gaussian(1 / mu, 1e-5)
        assert exact * (1 - 1e-12) <= gaussian(mu, 1e-5) <= exact * (1 + 1e-7)


def test_four_releases_cost_one_with_half_the_noise() -> None:
    four, one = epsilon([release(2.0)] * 4), epsilon([release(1.0)])
    assert four.epsilon == pytest.approx(one.epsilon, rel=1e-9)
    assert epsilon([release(2.0)] * 3).epsilon < one.epsilon


def test_unequal_releases_compose_by_their_squares() -> None:
    # 1/3^2 + 1/4^2 = 25/144, so they cost what one release of z = 12/5 does
    assert epsilon([release(3.0), release(4.0)]).epsilon == pytest.approx(
        epsilon([release(2.4)]).epsilon, rel=1e-9
    )


def test_only_noise_over_sensitivity_counts() -> None:
    same = release(noise_std=10.0, sensitivity=10.0)
    assert epsilon([same]) == epsilon([release(1.0)])
    assert epsilon([release(noise_std=10.0, sensitivity=5.0)]).epsilon < epsilon([same]).epsilon


def test_laplace_has_its_closed_forms() -> None:
    one = release(mechanism="laplace", noise_std=1.0)
    assert epsilon([one]).epsilon == pytest.approx(0.99998, abs=1e-9)  # 1/b + 2 ln(1 - delta)
    ten = [release(mechanism="laplace", noise_std=10.0)] * 100
    assert epsilon(ten, 0.0).epsilon == pytest.approx(10.0)
    for sensitivity, expected in ((1.0, 0.5), (2.0, 1.0)):  # discrete Laplace, a = 1/scale = 0.5
        drawn = release(mechanism="discrete_laplace", noise_std=2.0, sensitivity=sensitivity)
        assert epsilon([drawn], 0.0).epsilon == pytest.approx(expected)


def test_a_mixture_costs_the_sum_of_its_kinds() -> None:
    mixed = epsilon([release(1.0), release(mechanism="laplace", noise_std=4.0)])
    assert mixed.epsilon == pytest.approx(4.377178 + 0.25, rel=1e-6)


def test_where_nothing_is_accounted_for_nothing_is_bounded() -> None:
    for nothing in ([], [release(count=0)]):
        assert epsilon(nothing) == NOTHING and epsilon(nothing, 0.0).epsilon == math.inf


def test_a_release_without_noise_has_no_bound_and_is_named() -> None:
    clear = release(mechanism="none", kind="label_counts", noise_std=0.0, sensitivity=None)
    unclipped = release(kind="local_prototypes", sensitivity=None)
    zero = release(noise_std=0.0, kind="gradient")
    bound = epsilon([release(1.0), clear, unclipped, clear, zero])
    assert bound.epsilon == math.inf
    assert bound.spoiled_by == ("label_counts", "local_prototypes", "gradient")


def test_sampling_earns_no_credit_and_the_note_says_so() -> None:
    sampled = epsilon([release(sampling="poisson", sample_rate=0.01)])
    assert sampled.epsilon == epsilon([release()]).epsilon
    assert "not credited" in sampled.note and not epsilon([release()]).note


def test_gaussian_noise_has_no_bound_at_delta_zero() -> None:
    assert epsilon([release()], 0.0).epsilon == math.inf


@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-9, math.nan])
def test_a_delta_outside_0_to_1_is_refused(delta: float) -> None:
    with pytest.raises(UserError, match="delta must be at least 0 and below 1"):
        epsilon([release()], delta)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_std": -1.0},
        {"noise_std": math.nan},
        {"noise_std": math.inf},
        {"noise_std": "1"},
        {"noise_std": 10**400},
        {"sensitivity": -1.0},
        {"sample_rate": 1.1},
        {"mechanism": "magic"},
        {"unit": "household"},
        {"adjacency": "any"},
        {"sampling": "lucky"},
    ],
)
def test_numbers_that_mean_nothing_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UserError, match="ledger: round 0, model_delta"):
        epsilon([release(**changes)])  # type: ignore[arg-type]


def test_extreme_noise_neither_fails_nor_flatters() -> None:
    assert epsilon([release(1e-200)]).epsilon == math.inf
    assert epsilon([release(5e-324)]).epsilon == math.inf
    assert epsilon([release(1e12)]).epsilon == 0.0
