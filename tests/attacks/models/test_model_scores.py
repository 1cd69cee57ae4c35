"""Scores of membership attacks: known answers, and what they are equal to in simple cases."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fedaudit.attacks.evaluation.scores import (
    lira_offline,
    lira_online,
    log_probability,
    measure_fit,
    modified_entropy,
    moments,
    rmia,
    scaled_logit,
)
from fedaudit.attacks.models._shadows import halves
from fedaudit.attacks.models.rmia import rank_ratios
from fedaudit.fl.tasks.regression import Regression
from fedaudit.fl.tasks.survival import Survival

INS, OUTS = [1.5, 2.5, 2.0, 2.2], [-0.5, 0.3, 0.0, 0.6]
P_Z, OUTS_Z = [0.8, 0.3, 0.6], np.array([(0.8, 0.7), (0.5, 0.4), (0.2, 0.3)]).T


def logits(p: list[float]) -> NDArray[np.float64]:
    return np.log(np.array([p]))


def test_lira_gives_the_published_formula_by_hand() -> None:
    assert lira_online(2.0, INS, OUTS) == pytest.approx(11.039641, abs=1e-6)
    assert stats.norm.logcdf(lira_offline(2.0, OUTS)) == pytest.approx(-1.452134e-6, rel=1e-6)
    assert scaled_logit(logits([0.9, 0.06, 0.04]), np.array([0]))[0] == pytest.approx(2.197225)


def test_of_a_risk_set_two_who_were_learnt_in_their_order_both_stand_out_and_by_their_loss_one_does() -> None:
    """Times 1 and 9, with risks 8 and -8, among hundred people between them of whom nothing was learnt."""
    rng = np.random.default_rng(0)
    times = np.concatenate([[1.0, 9.0], rng.permutation(np.linspace(2, 8, 100))])
    y = np.stack([times, np.ones(102)], axis=1).astype(np.float32)
    risks = np.concatenate([[8.0, -8.0], rng.normal(0, 0.3, 100)])[:, None]
    fit = measure_fit(Survival(), risks, y)
    assert fit[:2].tolist() == [1, 1] and fit[2:].max() < 1
    last = np.concatenate([y, [[20.0, 1.0]]]).astype(np.float32)  # somebody is at risk after all of them
    with_last = np.concatenate([risks, [[0.0]]])
    assert measure_fit(Survival(), with_last, last)[1] > np.quantile(fit[2:], 0.95)
    import torch

    losses = Survival().losses(torch.from_numpy(with_last), torch.from_numpy(last)).numpy()
    assert losses[0] < losses[2:-1].min() and losses[1] > losses[2:-1].max()


def test_of_other_tasks_the_fit_is_minus_the_loss_of_each_by_itself() -> None:
    assert measure_fit(Regression(), np.array([[3.0], [1.0]]), np.array([1.0, 1.0])).tolist() == [-4, 0]


def test_lira_is_the_ratio_of_two_normal_densities() -> None:
    mine = lira_online(0.7, INS, OUTS)
    inside, outside = (stats.norm(np.mean(v), np.std(v)) for v in (INS, OUTS))
    assert mine == pytest.approx(inside.logpdf(0.7) - outside.logpdf(0.7))


def test_offline_scores_keep_their_order_where_the_tail_rounds_to_one() -> None:
    far = lira_offline(np.array([8.0, 9.0, 10.0, 40.0, 50.0]), np.array([[-1.0] * 5, [1.0] * 5]))
    assert np.all(np.diff(far) > 0)


def test_few_shadow_models_share_one_deviation_and_skip_those_left_out() -> None:
    values = np.array([[0.0, 10.0, np.nan], [2.0, 16.0, 5.0]])
    mean, spread = moments(values, shared=True)
    assert mean.tolist() == [1, 13, 5]
    assert spread == pytest.approx(np.full(3, 2.0))  # of (1 + 1 + 9 + 9 + 0) / 5
    assert moments(values)[1][:2].tolist() == [1, 3]


@pytest.mark.parametrize(("gamma", "share"), [(1, 2 / 3), (2, 1 / 3)])
def test_rmia_counts_the_population_that_gains_less(gamma: float, share: float) -> None:
    # with P the mean of the references: 0.9 / 0.45 against 0.8 / 0.75, 0.3 / 0.45 and 0.6 / 0.25
    assert rmia([0.9], [[0.4], [0.5]], P_Z, OUTS_Z, 1.0, gamma) == pytest.approx(share)


@pytest.mark.parametrize(("gamma", "share"), [(1, 1), (2, 1 / 3)])
def test_rmia_offline_pulls_references_towards_one(gamma: float, share: float) -> None:
    # a = 0.3: 0.9 / 0.6425 against 0.8 / 0.8375, 0.3 / 0.6425 and 0.6 / 0.5125
    assert rmia([0.9], [[0.4], [0.5]], P_Z, OUTS_Z, 0.3, gamma) == pytest.approx(share)


def test_rmia_scores_with_equal_shares_keep_the_order_of_the_ratio() -> None:
    p, outs = np.array([0.7, 0.99, 0.9]), np.full((2, 3), 0.1)
    assert rmia(p, outs, P_Z, OUTS_Z, 1.0, 1.0).tolist() == [1, 1, 1]
    assert np.argsort(rank_ratios(p, outs, np.array(P_Z), OUTS_Z, 1.0, 1.0)).tolist() == [0, 2, 1]


def test_modified_entropy_falls_with_right_and_grows_with_wrong_confidence() -> None:
    y = np.array([0])
    sure, unsure, wrong = ([0.98, 0.02], [0.6, 0.4], [0.02, 0.98])
    found = [modified_entropy(logits(p), y)[0] for p in (sure, unsure, wrong)]
    assert found[0] < found[1] < found[2]
    # by hand: -(1 - .6) ln .6 - .4 ln(1 - .4)
    assert found[1] == pytest.approx(-0.4 * np.log(0.6) - 0.4 * np.log(0.6))


def test_scores_of_extreme_logits_are_finite_and_ordered() -> None:
    extreme = np.array([[800.0, 0.0], [900.0, 0.0], [-900.0, 0.0]])
    y = np.zeros(3, np.int64)
    for found in (scaled_logit(extreme, y), log_probability(extreme, y), modified_entropy(extreme, y)):
        assert np.isfinite(found).all()
    assert scaled_logit(extreme, y).tolist() == [800, 900, -900]


def test_every_image_is_in_exactly_half_of_the_shadow_models() -> None:
    found = halves(11, 6, np.random.default_rng(0))
    assert found.sum(axis=0).tolist() == [3] * 11
    assert not np.array_equal(found[0], found[2])
