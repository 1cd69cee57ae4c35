"""Bounds are above the truth no more often than they say: on mechanisms that leak nothing, on
randomised response and on Gaussian noise, whose losses are known."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.canaries import bayes, f_dp, one_run, per_round, two_point
from fedaudit.audit.canaries.scores import SHARES, Guesses, Scored

DELTA, RUNS, CANARIES = 1e-5, 200, 1000
ALLOWED = 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)


def games(mu: float, seed: int) -> list[Scored]:
    """Runs of a Gaussian mechanism, each with its own coins; mu = 0 leaks nothing."""
    rng = np.random.default_rng(seed)
    inside = rng.random((RUNS, CANARIES)) < 0.5
    score = rng.normal(size=inside.shape) + mu * inside
    return [Scored(s, i) for s, i in zip(score, inside, strict=True)]


BOUNDS: dict[str, Callable[[Scored, np.random.Generator], float]] = {
    "two-point": lambda s, _: two_point.lower(s.errors(0.5), DELTA).epsilon,
    "steps": lambda s, _: per_round.lower(s.errors(0.5), DELTA).epsilon,
    "shift": lambda s, _: per_round.shift_lower(s, DELTA).epsilon,
    "one-run": lambda s, rng: one_run.lower(s, DELTA, rng).epsilon,
    "f-dp": lambda s, rng: f_dp.lower(s, DELTA, rng).epsilon,
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_mechanism_that_leaks_nothing_has_a_bound_of_0(name: str) -> None:
    rng = np.random.default_rng(1)
    above = sum(BOUNDS[name](s, rng) > 0 for s in games(0.0, 2))
    assert above / RUNS <= ALLOWED


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_gaussian_noise_is_covered(name: str, mu: float) -> None:
    rng, truth = np.random.default_rng(3), gaussian(mu, DELTA)
    found = np.array([BOUNDS[name](s, rng) for s in games(mu, 4)])
    assert (found > truth).mean() <= ALLOWED
    assert np.median(found) > 0.12 * truth  # and something is found


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_covered_and_nearly_reached(epsilon: float) -> None:
    rng = np.random.default_rng(5)
    right = rng.binomial(CANARIES, 1 / (1 + math.exp(-epsilon)), 300)
    found = np.array([one_run.epsilon(Guesses(canaries=CANARIES, made=CANARIES, right=int(v)), 0) for v in right])
    assert (found > epsilon).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert found.mean() == pytest.approx({0.5: 0.390, 1.0: 0.878, 3.0: 2.787}[epsilon], abs=0.04)


def test_a_share_chosen_on_the_canaries_it_is_scored_on_invents_leakage() -> None:
    def best(s: Scored) -> float:
        return max(one_run.epsilon(s.guesses(share), DELTA) for share in SHARES)

    above = sum(best(s) > 0 for s in games(0.0, 6))
    assert above / RUNS > ALLOWED  # the fault that splitting the canaries avoids


def test_a_credible_value_is_no_bound_at_zero_errors() -> None:
    perfect = Scored(np.arange(100.0), np.arange(100) >= 50).errors(49.5)
    assert bayes.epsilon(perfect, 0) > two_point.epsilon(perfect, 0) + 1
