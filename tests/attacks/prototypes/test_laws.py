"""What plays of single images and of groups tell of a message: a Gaussian law, and its likelihood ratio."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedaudit.attacks.evaluation.prototype_laws import CountLawFit, Law
from fedaudit.attacks.evaluation.sources import Prototype
from fedaudit.attacks.prototypes.prototype_membership import log_likelihood_ratio
from fedaudit.fl.artifact import Party, Role
from fedaudit.fl.kinds import Kind

N = 4


def sample(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance, a message of three numbers and five candidates."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 3))
    return rng.normal(size=3), root @ root.T + np.eye(3), rng.normal(size=3), rng.normal(size=(5, 3))


def prototypes(rows: np.ndarray, label: int = 0) -> list[Prototype]:
    client = Party(Role.CLIENT, 0)
    return [
        Prototype(
            artifact=str(i),
            kind=Kind.LOCAL_PROTOTYPES,
            sender=client,
            round=0,
            origin="recorded",
            label=label,
            samples=N,
            feature=row,
        )
        for i, row in enumerate(rows.astype(np.float32))
    ]


def test_the_score_is_the_ratio_of_the_two_gaussians_of_the_message() -> None:
    mean, covariance, message, phi = sample()
    slope = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.0, 3.0]])
    law = Law(message=message, expected=np.ones(3), slope=slope, residual=0.2 * np.eye(3), n=N)
    own = slope @ covariance @ slope.T
    out = multivariate_normal(np.ones(3), own / N + law.residual).logpdf(message)
    inside = own * (N - 1) / N**2 + law.residual
    into = [multivariate_normal(np.ones(3) + slope @ (f - mean) / N, inside).logpdf(message) for f in phi]
    np.testing.assert_allclose(law.compare(phi, mean, covariance), np.array(into) - out, rtol=1e-3)


def test_of_a_mean_it_orders_candidates_as_the_ratio_of_features_does() -> None:
    mean, covariance, message, phi = sample(1)
    law = Law(message=message, expected=mean, slope=np.eye(3), residual=np.zeros((3, 3)), n=N)
    spread, axes = np.linalg.eigh(covariance)
    plain = log_likelihood_ratio(phi, message, mean, axes, spread, N)
    found = law.compare(phi, mean, covariance)
    np.testing.assert_allclose(found - found[0], plain - plain[0], atol=1e-3)


def test_a_rotation_is_learned_from_plays_and_inverted() -> None:
    rng = np.random.default_rng(2)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    m, label = rng.normal(size=(400, 3)), np.arange(400) % 2
    fit = CountLawFit.regress(m, 5 * m @ rotation.T, label, np.arange(400) // 2)
    np.testing.assert_allclose(fit.slope * np.mean(list(fit.scale.values())), 5 * rotation, atol=1e-3)
    assert np.trace(fit.residual) < 1e-6
    (law,) = fit.describe(prototypes(5 * (rotation @ np.array([[0.3], [-0.2], [0.9]])).T))
    own = label == 0
    image = fit.invert(law, m[own].mean(0), np.eye(3))
    np.testing.assert_allclose(image, [0.3, -0.2, 0.9], atol=1e-3)


def test_noise_tells_nothing() -> None:
    rng = np.random.default_rng(3)
    m, p = rng.normal(size=(2, 600, 3))
    fit = CountLawFit.regress(m, p, np.zeros(600, int), np.arange(600))
    (law,) = fit.describe(prototypes(p[:1]))
    assert np.ptp(law.compare(rng.normal(size=(50, 3)), np.zeros(3), np.eye(3))) < 0.2


@pytest.mark.parametrize("factor", [-7.3, 4.0])
def test_the_factor_of_a_sender_is_taken_out_of_all_that_it_sent(factor: float) -> None:
    rng = np.random.default_rng(4)
    label = np.arange(500) % 5
    m = 10 * np.eye(5, 8)[label] + 3 + 0.3 * rng.normal(size=(500, 8))
    fit = CountLawFit.regress(m, m, label, np.arange(500) // 5)
    sent = [p for c in range(5) for p in prototypes(factor * m[label == c][:1], c)]
    laws = fit.describe(sent)
    np.testing.assert_allclose([law.message for law in laws], m[:5], rtol=0.1)
