"""Tracing: the likelihood ratio is that of the two Gaussians, finds members, and nothing else."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.evaluation.membership import Scores, curve, evidence
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_membership import PrototypeMembership, log_likelihood_ratio
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import World


@cache
def world() -> World:
    return World(sizes=(1, 2, 20), clients=6, groups=60)


@cache
def claim() -> Claim:
    return PrototypeMembership().run(world().artifacts, world().knowledge, np.random.default_rng(0))


@cache
def judged() -> list[Evidence]:
    return PrototypeMembership().measure(claim(), world(), np.random.default_rng(1))


def one(measure: str, n: float) -> Evidence:
    (e,) = [e for e in judged() if e.measure == measure and e.condition == {"n": n, "origin": "replayed"}]
    return e


@pytest.mark.parametrize(("n", "noise"), [(2, 0.0), (7, 0.3), (1, 0.5)])
def test_the_score_is_the_ratio_of_the_two_gaussians(n: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    cov, mean = root @ root.T, rng.normal(size=3)
    features, prototype = rng.normal(size=(4, 3)), rng.normal(size=3)
    spread, axes = np.linalg.eigh(cov)
    tau = noise**2 * np.eye(3)
    # the constant of the two normalisations is the same for all candidates and left out
    out = multivariate_normal(mean, cov / n + tau).logpdf(prototype)
    within = cov * (n - 1) / n**2 + tau
    into = [multivariate_normal(mean + (f - mean) / n, within).logpdf(prototype) for f in features]
    constant = 0.5 * np.linalg.slogdet(within)[1] - 0.5 * np.linalg.slogdet(cov / n + tau)[1]
    found = log_likelihood_ratio(features, prototype, mean, axes, spread, n, noise)
    np.testing.assert_allclose(found, np.array(into) - out + constant)


def test_one_sample_scores_highest_at_its_own_features() -> None:
    features = np.array([[1.0, 2.0], [1.1, 2.0], [-3.0, 0.0]])
    found = log_likelihood_ratio(features, features[0], np.zeros(2), np.eye(2), np.ones(2), 1)
    assert found.tolist() == pytest.approx([0, -0.01, -20])


def test_gaussian_features_give_the_area_that_theory_says() -> None:
    # AUC = Phi(sqrt(d / 2n)), for features that are Gaussian with a known covariance
    rng, d, n = np.random.default_rng(0), 40, 100
    scores: dict[str, list[float]] = {"in": [], "out": []}
    for _ in range(300):
        group = rng.normal(size=(n, d))
        both = np.r_[group[:20], rng.normal(size=(20, d))]
        s = log_likelihood_ratio(both, group.mean(0), np.zeros(d), np.eye(d), np.ones(d), n)
        scores["in"] += s[:20].tolist()
        scores["out"] += s[20:].tolist()
    wins = np.searchsorted(np.sort(scores["out"]), scores["in"]).mean() / 6000
    assert wins == pytest.approx(norm.cdf(np.sqrt(d / (2 * n))), abs=0.015)


def test_members_of_small_prototypes_are_traced() -> None:
    assert one("auc", 1).control == "positive" and one("auc", 1).value > 0.99
    assert one("auc", 2).value > 0.95
    assert one("auc", 20).value > 0.7  # where the distance to the prototype sees nothing
    tpr = one("tpr_at_fpr_0.01", 2)
    assert tpr.value > 0.6 and tpr.interval is not None and tpr.interval[0] > 0.01


@pytest.mark.parametrize("n", [1, 2, 20])
def test_another_prototype_of_the_class_traces_nothing(n: float) -> None:
    other = next(b for b in one("auc", n).baselines if b.name == "another prototype of the class")
    assert other.interval is not None and other.interval[0] <= 0.5 <= other.interval[1]


def test_unseen_images_in_the_place_of_members_are_not_traced() -> None:
    (control,) = [e for e in judged() if e.control == "negative"]
    assert control.interval is not None and control.interval[0] <= 0.5 <= control.interval[1]


def test_curves_have_a_line_for_each_number_of_samples() -> None:
    drawn = PrototypeMembership().curves(claim(), world())
    assert [c.name for c in drawn if "replayed" in c.name] == [f"n = {n}, replayed" for n in (1, 2, 20)]
    for c in drawn:
        assert (c.x[0], c.x[-1], c.y[-1]) == (0, 1, 1)
        assert list(c.y) == sorted(c.y)


def test_a_rate_that_needs_more_negatives_is_left_out() -> None:
    rng = np.random.default_rng(0)
    few = Scores(
        members=rng.normal(size=40),
        others=rng.normal(size=500),
        member_groups=np.arange(40),
        other_groups=np.arange(500),
    )
    assert [e.measure for e in evidence(few, {})] == ["auc", "tpr_at_fpr_0.01"]
    assert curve("x", few).x[1] == pytest.approx(1 / 500)


def test_classes_without_auxiliary_images_are_refused() -> None:
    picky = PrototypeMembership(PrototypeMembership.Config(least_auxiliary=10_000))
    with pytest.raises(UserError, match="enough auxiliary examples"):
        picky.run(world().artifacts, world().knowledge, np.random.default_rng(0))
    with pytest.raises(UserError, match="noise_std must be >= 0, got -1"):
        configure(PrototypeMembership, {"noise_std": -1}, "attacks[0]")
