"""Bounds of claims: published values, conversions of units and neighbours, and lower ends below upper ones."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import norm

from fedaudit.audit.accounting.terms import Term
from fedaudit.audit.claims.bounds import Interval, certify, interval, taken_part
from fedaudit.audit.claims.shuffling import batches_at_least, reports_at_least, reports_at_most
from tests.audit.claims.made import made, of


def bound(
    count: int = 1, protects: str = "record", towards: str = "unstated", delta: float = 1e-5, **s: Any
) -> Interval:
    claim = made(unit=protects, adjacency=towards, **of(1.0, delta, **s))
    return interval(claim, claim.judged, count)


GAUSSIAN = {"noise": 1.0, "sensitivity": 1.0}
POISSON = GAUSSIAN | {"sampling": "poisson", "rate": 0.1}
FIXED = GAUSSIAN | {"sampling": "fixed_without_replacement", "rate": 0.01}


@pytest.mark.parametrize(
    ("setting", "count", "value"),
    [
        ({"noise": 5.0, "sensitivity": 1.0, "tree": 128}, 1, 2.288387),
        ({"noise": 5.0, "sensitivity": 1.0, "tree": 1000}, 1, 2.737785),
        ({"noise": 10.0, "sensitivity": 1.0, "tree": 128}, 10, 3.848610),
        ({"rho": 0.5}, 1, 4.377178),
        ({"noise": 1.0, "sensitivity": 1.0, "mechanism": "laplace"}, 1, 0.99998),
        ({"noise": 10.0, "sensitivity": 1.0, "mechanism": "laplace"}, 100, 4.220347),
        ({"epsilon": math.log(3)}, 20, 21.970842),
        ({"epsilon": 1.0, "tuned": {"mean": 10}}, 1, 3.0),
        (POISSON, 1, 1.6845),
    ],
)
def test_upper_bounds_have_their_published_values(setting: dict[str, Any], count: int, value: float) -> None:
    assert bound(count, **setting).upper == pytest.approx(value, rel=2e-4)


def test_a_sensitivity_is_converted_to_the_claim_s_neighbours() -> None:
    one, twice = bound(**GAUSSIAN).upper, bound(noise=0.5, sensitivity=1.0).upper
    assert bound(towards="replace_one", adjacency="add_or_remove_one", **GAUSSIAN).upper == twice
    assert bound(towards="replace_one", adjacency="zero_out", **GAUSSIAN).upper == twice
    assert (
        bound(towards="replace_one", **GAUSSIAN).upper == one
    )  # it is that of the claim where nothing else is said
    assert bound(towards="add_or_remove_one", adjacency="replace_one", **GAUSSIAN).upper == one


def test_a_sensitivity_is_converted_to_the_claim_s_unit() -> None:
    alone = bound(protects="client", unit="record", **GAUSSIAN)
    assert alone.upper == math.inf  # how many records a client has is not said
    assert (
        bound(protects="client", unit="record", records=4, **GAUSSIAN).upper
        == bound(noise=0.25, sensitivity=1).upper
    )
    record = bound(
        protects="record", towards="replace_one", unit="client", adjacency="add_or_remove_one", **GAUSSIAN
    )
    assert record.upper == bound(noise=0.5, sensitivity=1.0).upper
    assert record.lower == 0.0  # a record may well change less than all of its client's update


def test_sampling_is_credited_towards_the_neighbours_that_it_is_proved_for_only() -> None:
    whole = bound(10, **GAUSSIAN).upper
    assert bound(10, towards="replace_one", **POISSON).upper == whole
    assert bound(10, towards="replace_one", **FIXED).upper < whole
    assert bound(10, towards="zero_out", **POISSON).upper == bound(10, **POISSON).upper < whole
    assert bound(10, towards="replace_one", **POISSON).lower == 0.0


def own_pld(z: float, rate: float, count: int, with_it: float, without: float) -> float:
    """epsilon at delta 1e-5 of (1-q) N(0) + q N(with_it) against (1-q) N(0) + q N(without), by an own FFT."""
    x, points, step = np.linspace(-9 * z, 2 + 9 * z, 200_001), 2**21, 5e-5 if rate < 0.05 else 2e-4
    middle = (x[1:] + x[:-1]) / 2
    first, second = (
        ((1 - rate) * norm.pdf(middle, 0, z) + rate * norm.pdf(middle, mean, z)) * (x[1] - x[0])
        for mean in (with_it, without)
    )
    cells = np.rint(np.log(first / second) / step).astype(int) % points
    one = np.fft.rfft(np.bincount(cells, weights=first, minlength=points))
    shares = np.clip(np.fft.irfft(one**count, points), 0, None)
    losses = np.fft.fftfreq(points, 1 / points) * step
    return float(brentq(lambda e: (shares * -np.expm1(np.minimum(e - losses, 0))).sum() - 1e-5, 0, 60))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("noise", "rate", "count", "least"), [(1.0, 0.1, 100, 17.3), (1.0, 0.01, 1000, 10.2), (2.0, 0.5, 10, 4.9)]
)
def test_where_a_fixed_number_is_drawn_a_unit_zeroed_out_is_between_its_pair_and_a_replacement(
    noise: float, rate: float, count: int, least: float
) -> None:
    """Somebody else is drawn in its place, who may send -C: 7.81 was said of at least 17.3, 2.20 of 10.2."""
    setting: dict[str, Any] = FIXED | {"noise": noise, "rate": rate}
    claim = made(adjacency="zero_out", releases={"all": count}, **of(10.0, **setting))
    found, truth = certify(claim, claim.judged, count), own_pld(noise, rate, count, 2.0, 1.0)
    assert least < found.lower <= truth * (1 + 1e-4) <= found.upper and found.lower > 0.98 * truth
    replaced = bound(count, towards="replace_one", **setting | {"noise": noise / 2}).upper
    in_full = bound(count, noise=noise, sensitivity=1.0).upper
    assert found.upper == min(replaced, in_full)


@pytest.mark.nightly
@pytest.mark.parametrize(("rate", "count"), [(0.1, 100), (0.5, 4), (0.9, 1)])
def test_where_a_fixed_number_is_drawn_removing_a_unit_reaches_what_replacing_it_costs(
    rate: float, count: int
) -> None:
    claim = made(adjacency="add_or_remove_one", releases={"all": count}, **of(1.0, **FIXED | {"rate": rate}))
    found = certify(claim, claim.judged, count)
    # dp-accounting's pair: drawn, the unit sends C where somebody else sent -C
    one = privacy_loss_distribution.from_gaussian_mechanism(0.5, sampling_prob=rate)
    truth = one.self_compose(count).get_epsilon_for_delta(1e-5)
    assert 0.99 * truth < found.lower <= truth <= found.upper * (1 + 1e-6) < 1.12 * truth


def test_lower_bounds_are_below_and_near_where_they_can_be() -> None:
    assert bound(**GAUSSIAN).lower == bound(**GAUSSIAN).upper
    laplace = bound(100, noise=10.0, sensitivity=1.0, mechanism="laplace")
    assert 4.20 < laplace.lower <= laplace.upper
    answers = bound(20, noise=1 / math.log(3), sensitivity=1.0, mechanism="randomized_response")
    assert 21.96 < answers.lower <= 21.969087 <= answers.upper
    tree = bound(noise=5.0, sensitivity=1.0, tree=1000)
    assert tree.lower == 0.0  # the root of 1,024 leaves is never complete
    claim = made(**of(1.0, noise=5.0, sensitivity=1.0, tree=1000))
    assert 0.9 * tree.upper < certify(claim, claim.judged, 1).lower < tree.upper
    small = made(**of(1.0, **POISSON | {"noise": 0.0025}))
    assert 80_000 < certify(small, small.judged, 50).lower < certify(small, small.judged, 50).upper


@pytest.mark.nightly
def test_sampled_releases_have_their_published_values() -> None:
    assert bound(200, **POISSON).upper == pytest.approx(9.971320, rel=1e-4)
    assert bound(1000, towards="replace_one", **FIXED).upper == pytest.approx(2.1990, rel=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("setting", [POISSON | {"noise": 2.0}, FIXED])
def test_sampled_releases_have_a_lower_bound_near_the_upper_one(setting: dict[str, Any]) -> None:
    claim = made(adjacency="unstated", **of(0.1, **setting))
    found = certify(claim, claim.judged, 500)
    assert 0.7 * found.upper < found.lower < found.upper and found.below == "PLD, optimistic grid"


@pytest.mark.parametrize(
    ("epsilon", "reports", "value"), [(1.0, 1000, 0.531987), (2.0, 10**4, 0.469583), (4.0, 10**5, 0.501640)]
)
def test_shuffled_reports_have_their_published_bound(epsilon: float, reports: int, value: float) -> None:
    assert reports_at_most(epsilon, reports, 1e-5) == pytest.approx(value, abs=1e-6)
    assert 0 < reports_at_least(epsilon, reports, 1e-5) < value


def test_the_chance_to_take_part_is_exact_for_one_release_of_little_noise() -> None:
    whole = bound(noise=0.05, sensitivity=1.0, delta=1e-4).upper
    exact = math.log1p(0.1 * math.expm1(whole))  # amplification by subsampling, delta q times smaller
    found = taken_part(Term("gaussian", 0.05, "poisson", 0.1), 1, 1e-5)
    assert exact - 1e-6 < found <= exact + 1e-9
    assert taken_part(Term("gaussian", 0.05, "poisson", 1e-6), 1, 1e-5) == 0.0  # it may hide altogether


def test_too_few_shuffled_reports_are_not_amplified() -> None:
    assert reports_at_most(1.0, 89, 1e-5) == 1.0 and reports_at_most(1.0, 10**6, 0.0) == 1.0
    assert reports_at_least(1.0, 1, 1e-9) == pytest.approx(1.0, abs=1e-8)


def test_shuffled_reports_share_the_delta_of_all() -> None:
    pure = {"mechanism": "randomized_response", "epsilon": 1.0, "shuffled": 10**5}
    assert bound(**pure).upper == pytest.approx(reports_at_most(1.0, 10**5, 1e-5))
    assert bound(10, **pure).upper == pytest.approx(10 * reports_at_most(1.0, 10**5, 1e-6))


def test_one_shuffled_batch_an_epoch_is_no_shuffling_and_more_batches_cost_less() -> None:
    exact = bound(**GAUSSIAN).upper
    assert 0.999 * exact < batches_at_least(1.0, 1, 1, 1e-5) <= exact
    found = [batches_at_least(0.5, n, 1, 1e-5) for n in (1, 10, 1000)]
    assert found == sorted(found, reverse=True) and found[-1] > 2
    assert batches_at_least(1.0, 10, 0, 1e-5) == 0.0
