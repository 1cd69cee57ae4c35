"""Updates are read by playing the client: the likelihood ratio of a Gaussian, on what its own code sends."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal

from fedaudit.attacks.attack import Images
from fedaudit.attacks.models._targets import UPDATE, Target, targets
from fedaudit.attacks.models.played_update import Fit, PlayedUpdate, Stage
from fedaudit.fl.kinds import Kind
from tests.attacks.models.overfit import LIGHT, Overfit, Played, light
from tests.contracts.attack_worlds import made, stage


def test_the_score_is_the_root_of_the_likelihood_ratio_at_the_likeliest_amount() -> None:
    """By scipy: the density of the update with so much of the candidate in it, over that without."""
    rng = np.random.default_rng(3)
    factor, ridge = rng.normal(size=(6, 4)), 0.3
    covariance = factor @ factor.T + ridge * np.eye(6)
    mean, expected, change = rng.normal(size=(3, 6))
    target = Target(
        artifact="",
        origin="recorded",
        kind=Kind.LOCAL_MODEL,
        model=UPDATE,
        sender=0,
        weights={"w": change},
        start={"w": np.zeros(6)},
    )
    known = mean + rng.normal(size=(40, 6))
    stage = Stage(target, None, {}, 0)  # type: ignore[arg-type]
    fit = Fit(stage, expected, factor, ridge, known, np.ones(40, np.int64))
    psi = known.mean(axis=0) + rng.normal(size=(8, 6))
    scores = fit.score(target, psi, np.ones(8, np.int64))
    amounts = np.linspace(-6, 6, 4801)
    expected_scores = []
    for d in psi - known.mean(axis=0):
        density = multivariate_normal(np.zeros(6), covariance).logpdf(change - expected - amounts[:, None] * d)
        best = int(density.argmax())
        expected_scores.append(np.sign(amounts[best]) * np.sqrt(2 * (density[best] - density[2400])))
    slope, intercept = np.polyfit(expected_scores, scores, 1)
    assert slope > 0  # in units of auxiliary images, and around them
    np.testing.assert_allclose(scores, slope * np.array(expected_scores) + intercept, atol=1e-3)


def scored(world: Overfit) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores of the images of client 0 in its update, and of as many that nobody trained on."""
    known = replace(world.knowledge, player=Played(world))
    queried = [t for t in targets(world.artifacts, np.random.default_rng(0), 1000, known.training) if t.start]
    attack = PlayedUpdate(PlayedUpdate.Config(plays=16))
    own = world.client_images(0)
    others = world.reference.only(np.arange(len(own)))
    both = Images(x=np.concatenate([own.x, others.x]), y=np.concatenate([own.y, others.y]))
    table = attack.scorer(queried[:1], known, np.random.default_rng(1))(both, np.ones((1, len(both)), bool))
    return table[0, : len(own)], table[0, len(own) :]


def test_members_score_above_others_and_images_of_a_client_that_did_not_train_do_not() -> None:
    members, others = scored(light())
    assert float((members[:, None] > others).mean()) > 0.8
    members, others = scored(Overfit(heart=False, config=LIGHT))
    assert abs(float((members[:, None] > others).mean()) - 0.5) < 0.15


def test_what_cannot_be_played_is_not_read() -> None:
    where = stage("played_update")
    attack = made("played_update")
    assert attack.not_applicable(where.view, where.knowledge) == ""
    reason = attack.not_applicable(where.view, replace(where.knowledge, player=None))
    assert "cannot be played" in reason and "nothing of its safety" in reason


def test_a_client_that_states_billions_of_examples_is_not_played() -> None:
    target = Target(
        artifact="a",
        origin="recorded",
        kind=Kind.LOCAL_MODEL,
        model=UPDATE,
        sender=0,
        weights={},
        start={"w": np.ones(1)},
    )
    attack = PlayedUpdate()
    assert attack.applies_to(replace(target, examples=500))
    assert not attack.applies_to(replace(target, examples=10**12))
    assert attack.applies_to(replace(target, examples=50_000, clients=100)), "500 each"
