"""What is read of a noised message of one image names that image at least as often as the message."""

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import Ridge

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.naming import build_gallery, name_people
from fedaudit.attacks.evaluation.prototype_laws import CountLawFit, Law
from tests.attacks.world import Architecture, World, weights

Floats = NDArray[np.float64]
NOISES = (0.0, 0.01, 0.03, 0.05)  # of the median length of features, on each of 64 numbers


class Clipped:
    """Features of single digits, clipped to half of their median length and noised, with 40 plays."""

    def __init__(self, noise: float) -> None:
        self.world, rng = world(), np.random.default_rng(1)
        aux = self.world.auxiliary
        self.phi = features(aux.x)
        length = float(np.median(np.linalg.norm(self.phi, axis=1)))

        def send(rows: Floats) -> Floats:
            clipped = rows * np.minimum(1, 0.5 * length / np.linalg.norm(rows, axis=1, keepdims=True))
            return clipped + rng.normal(0, noise * length, rows.shape)

        own = [c.only(np.arange(0, len(c), 6)) for c in self.world.clients]
        self.members = Examples(x=np.concatenate([c.x for c in own]), y=np.concatenate([c.y for c in own]))
        self.sent = send(features(self.members.x))
        self.classes = {c: features(aux.of_class(c)) for c in range(10)}
        drawn = np.array([rng.choice(np.flatnonzero(aux.y == c), 40) for c in range(10)]).T
        label, visit = np.tile(np.arange(10), 40), np.repeat(np.arange(40), 10)
        m = self.phi[drawn.ravel()]
        self.fit = CountLawFit.regress(m, send(m), label, visit)

    def read(self) -> Floats:
        """As played."""
        return np.stack([self.invert(p, int(c)) for p, c in zip(self.sent, self.members.y, strict=True)])

    def invert(self, message: Floats, label: int) -> Floats:
        fit, rows = self.fit, self.classes[label]
        sent, expected = (p / fit.scale[label] for p in (message, fit.expected[label]))
        law = Law(message=sent, expected=expected, slope=fit.slope, residual=fit.residual, n=1)
        return fit.invert(law, rows.mean(0), ledoit_wolf(rows)[0])

    def rescaled(self) -> Floats:
        """The messages at the length that features of their class have: what a list of readings made of them."""
        lengths = [np.linalg.norm(self.classes[int(c)].mean(0)) for c in self.members.y]
        return self.sent * (np.array(lengths) / np.linalg.norm(self.sent, axis=1))[:, None]

    def share_named(self, read: Floats) -> float:
        """By ridge regression from features to pixels, among 50 held-out digits of the class and its mean."""
        aux, deviation = self.world.auxiliary, self.phi.std(0) + 1e-3
        fit = Ridge(alpha=50.0).fit(self.phi / deviation, aux.x.reshape(len(aux), -1))
        images = np.clip(fit.predict(read / deviation), 0, 1).reshape(-1, 1, 8, 8)
        named = 0.0
        for image, x, c in zip(images, self.members.x, self.members.y, strict=True):
            held_out = self.world.reference.of_class(int(c))[:50]
            mean = aux.of_class(int(c)).mean(0, keepdims=True)
            gallery = build_gallery(Examples(x=x[None], y=np.array([c])), held_out, mean, lambda seen: seen)
            named += float(name_people(image[None], gallery).hits[0])
        return named / len(images)


@cache
def world() -> World:
    return World(sizes=(), clients=5)


def features(images: NDArray[np.float32]) -> Floats:
    return Architecture()(weights(0)).features(images).astype(np.float64)


@cache
def clipped(noise: float) -> Clipped:
    return Clipped(noise)


@pytest.mark.sample(2)
@pytest.mark.parametrize("noise", NOISES)
def test_reading_by_plays_names_no_fewer_than_the_message_itself(noise: float) -> None:
    case = clipped(noise)
    assert case.share_named(case.read()) >= case.share_named(case.rescaled())


@pytest.mark.sample(2)
@pytest.mark.parametrize("noise", NOISES)
def test_what_is_read_lies_as_far_from_the_mean_of_its_class_as_images_do(noise: float) -> None:
    case = clipped(noise)
    means = np.stack([case.classes[int(c)].mean(0) for c in case.members.y])
    read, own = case.read() - means, features(case.members.x) - means
    assert 0.7 < np.sqrt((read**2).sum() / (own**2).sum()) < 1.4
