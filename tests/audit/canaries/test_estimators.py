"""Lower bounds on epsilon: known answers from independent code, and what refuses or saturates."""

import math

import numpy as np
import pytest
from scipy import stats

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.canaries import bayes, f_dp, one_run, one_shot, per_round, two_point
from fedaudit.audit.canaries.columns import Credible, Fitted, Lower
from fedaudit.audit.canaries.scores import Errors, Guesses, Scored, split_guesses
from fedaudit.fl.runtime.errors import UserError

DELTA = 1e-5


def errors(fp: int, fn: int, n: int) -> Errors:
    return Errors(false_positives=fp, false_negatives=fn, inside=n, outside=n)


def guesses(canaries: int, made: int, right: int) -> Guesses:
    return Guesses(canaries=canaries, made=made, right=right)


# Known answers: computed once with jax-privacy 2.0.0 (its estimators without the known fault) and
# Microsoft's Bayesian code; six digits.


@pytest.mark.parametrize(
    ("fp", "fn", "n", "delta", "epsilon"),
    [
        (100, 600, 1000, 0, 1.122178),
        (10, 500, 1000, DELTA, 3.241995),
        (0, 0, 500, 0, 4.905594),
        (0, 0, 1000, 0, 5.600588),
    ],
)
def test_two_point_game(fp: int, fn: int, n: int, delta: float, epsilon: float) -> None:
    assert two_point.epsilon(errors(fp, fn, n), delta) == pytest.approx(epsilon, abs=1e-6)
    assert two_point.epsilon(errors(fn, fp, n), delta) == pytest.approx(epsilon, abs=1e-6)


def test_two_point_game_saturates_with_its_trials() -> None:
    known = {50: 2.570, 100: 3.281, 200: 3.984, 500: 4.906, 10**3: 5.601, 10**4: 7.905, 10**5: 10.208}
    for n, epsilon in known.items():
        assert two_point.ceiling(n, n, 0) == pytest.approx(epsilon, abs=5e-4)


def test_77_perfect_trials_a_side_refute_3_and_76_do_not() -> None:
    assert two_point.ceiling(77, 77, 0.01) > 3 >= two_point.ceiling(76, 76, 0.01)


@pytest.mark.parametrize(
    ("canaries", "made", "right", "delta", "epsilon"),
    [
        (1000, 1000, 1000, 0, 5.809068),
        (1000, 1000, 1000, DELTA, 5.782283),
        (1000, 1000, 600, 0, 0.297468),
        (1000, 1000, 600, DELTA, 0.297227),
        (1000, 200, 190, 0, 2.397871),
        (1000, 200, 190, DELTA, 2.393618),
        (1000, 100, 100, DELTA, 3.465376),
        (100, 100, 100, 0, 3.492965),
        (100, 50, 45, 0, 1.393604),
        (5000, 5000, 3000, DELTA, 0.357372),
        (100000, 1500, 1429, DELTA, 2.668754),
        (1000, 1000, 520, 0, 0),
    ],
)
def test_one_run(canaries: int, made: int, right: int, delta: float, epsilon: float) -> None:
    found = one_run.epsilon(guesses(canaries, made, right), delta)
    assert found == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(
    ("canaries", "made", "right", "mu", "epsilon"),
    [
        (1000, 1000, 1000, 2.368074, 12.334569),
        (1000, 1000, 600, 0.163850, 0.583540),
        (1000, 200, 190, 0.908054, 3.916104),
        (1000, 100, 100, 1.225533, 5.549028),
        (5000, 5000, 3000, 0.172775, 0.618325),
        (100000, 1500, 1429, 0.781813, 3.299235),
        (100, 50, 45, 0.675147, 2.793021),
    ],
)
def test_f_dp(canaries: int, made: int, right: int, mu: float, epsilon: float) -> None:
    found = f_dp.mu(guesses(canaries, made, right))
    assert found == pytest.approx(mu, abs=1e-6)
    assert gaussian(found, DELTA) == pytest.approx(epsilon, abs=2e-6)


@pytest.mark.parametrize(
    ("fp", "fn", "n", "mu", "epsilon"),
    [(10, 500, 1000, 2.010986, 10.06496), (159, 159, 1000, 1.806758, 8.827163), (0, 0, 500, 4.879314, 31.9974)],
)
def test_steps(fp: int, fn: int, n: int, mu: float, epsilon: float) -> None:
    assert per_round.mu(errors(fp, fn, n)) == pytest.approx(mu, abs=1e-6)
    found = per_round.lower(errors(fp, fn, n), DELTA)
    assert isinstance(found, Lower) and found.epsilon == pytest.approx(epsilon, abs=1e-4)
    assert found.assumes  # no errors extrapolate to 32 by the assumption alone; two-point says 4.9


@pytest.mark.parametrize(("fp", "fn", "z", "epsilon"), [(161, 167, 0.5658, 33.71), (326, 347, 1.4677, 5.224)])
def test_steps_composed_under_sampling(fp: int, fn: int, z: float, epsilon: float) -> None:
    mu = per_round.mu(errors(fp, fn, 1000))
    assert 1 / mu == pytest.approx(z, abs=5e-5)
    assert per_round.composed(mu, DELTA, 200, 0.1) == pytest.approx(epsilon, abs=5e-3)


def test_steps_without_sampling_compose_as_one_gaussian() -> None:
    found = per_round.lower(errors(159, 159, 1000), DELTA, rounds=4)
    assert found.epsilon == pytest.approx(gaussian(2 * 1.806758, DELTA), abs=1e-4)


@pytest.mark.parametrize(
    ("fp", "fn", "n", "delta", "level", "epsilon"),
    [
        (10, 500, 1000, DELTA, 0.95, 3.4212),
        (10, 500, 1000, DELTA, 0.975, 3.339),
        (0, 0, 500, 0, 0.95, 6.513),
        (0, 0, 1000, 0, 0.95, 7.207),
        (100, 600, 1000, 0, 0.95, 1.2203),
    ],
)
def test_bayes(fp: int, fn: int, n: int, delta: float, level: float, epsilon: float) -> None:
    assert bayes.epsilon(errors(fp, fn, n), delta, level) == pytest.approx(epsilon, abs=5e-4)


@pytest.mark.parametrize(("mu", "epsilon", "conservative"), [(1, 4.393278, 4.115139), (2, 10.021311, 9.678419)])
def test_one_shot(mu: float, epsilon: float, conservative: float) -> None:
    quantiles = stats.norm.ppf((np.arange(1000) + 0.5) / 1000)
    cosines = (quantiles + mu) / 1000
    assert one_shot.estimate(cosines, 10**6, DELTA).epsilon == pytest.approx(epsilon, abs=2e-6)
    bound = gaussian(one_shot.conservative_mu(cosines, 10**6), DELTA)
    assert bound == pytest.approx(conservative, abs=5e-5)


@pytest.mark.parametrize(("spread", "epsilon"), [(1.1, 12.573899), (0.8, 20.609661)])
def test_one_shot_with_another_spread(spread: float, epsilon: float) -> None:
    found = one_shot.epsilon((0, 1), (2, spread), DELTA)
    assert found == pytest.approx(epsilon, abs=2e-6)


def test_hockey_stick_is_its_integral() -> None:
    assert one_shot.hockey_stick(1, (2, 1.1), (0, 1)) == pytest.approx(0.494158, abs=1e-6)
    x = np.linspace(-30, 30, 600_001)
    for p, q in (((0, 1), (2, 1.1)), ((0, 1), (2, 0.8)), ((1, 1), (0, 1)), ((0, 2), (0, 1))):
        gap = stats.norm.pdf(x, *p) - math.exp(1.5) * stats.norm.pdf(x, *q)
        whole = float(np.maximum(gap, 0).sum() * (x[1] - x[0]))
        assert one_shot.hockey_stick(1.5, p, q) == pytest.approx(whole, abs=1e-7)


# Columns -------------------------------------------------------------------------------------


def test_bounds_estimates_and_credible_values_are_different_types() -> None:
    assert type(two_point.lower(errors(1, 1, 50), DELTA)) is Lower
    assert type(bayes.credible(errors(1, 1, 50), DELTA)) is Credible
    assert type(one_shot.estimate([0.1, 0.2, 0.3], 100, DELTA)) is Fitted
    assert not issubclass(Credible, Lower) and not issubclass(Fitted, Lower)


def test_more_errors_never_show_more() -> None:
    few, many = errors(5, 100, 500), errors(20, 120, 500)
    assert two_point.epsilon(many, DELTA) < two_point.epsilon(few, DELTA)
    assert per_round.mu(many) < per_round.mu(few)
    assert bayes.epsilon(many, DELTA) < bayes.epsilon(few, DELTA)
    assert one_run.epsilon(guesses(500, 200, 150), DELTA) < one_run.epsilon(guesses(500, 200, 170), DELTA)
    assert f_dp.mu(guesses(500, 200, 150)) < f_dp.mu(guesses(500, 200, 170))


def test_a_reversed_adversary_shows_nothing_by_steps_instead_of_its_absolute_value() -> None:
    assert per_round.mu(errors(900, 900, 1000)) == 0.0
    reversed_scores = Scored(np.arange(100.0), np.arange(100) < 50)
    assert per_round.shift(reversed_scores) == 0.0


# Refusals ------------------------------------------------------------------------------------


def test_scores_must_go_with_coins_and_be_numbers() -> None:
    with pytest.raises(UserError, match="one score a canary"):
        Scored(np.zeros(3), np.zeros(4, bool))
    with pytest.raises(UserError, match="not finite"):
        Scored(np.array([0.0, np.nan]), np.zeros(2, bool))


def test_a_share_is_not_chosen_on_half_of_seven_canaries() -> None:
    few = Scored(np.zeros(7), np.zeros(7, bool))
    with pytest.raises(UserError, match="too few"):
        split_guesses(few, lambda g: 0.0, np.random.default_rng(0))
