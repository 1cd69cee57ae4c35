"""A white-box search in a generator finds what it memorised, and nothing in an untrained one."""

from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.generators._latent import LatentSearch, Settings
from fedaudit.attacks.generators.latent_inversion import LatentInversion
from fedaudit.audit.observer.generators import KnownGenerators
from fedaudit.fl.families.gan import GanConfig
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.generators.test_generators import KNOWN, SHAPE, STEPS, one, world

ATTACK = LatentInversion(LatentInversion.Config(planted_steps=400, reference_steps=60, non_members=500))


@cache
def judged(steps: int) -> list[Evidence]:
    """Client 0 trained the generator for `steps` on its 20 images."""
    w = world(steps)
    claim = ATTACK.run([w.artifacts[1]], w.knowledge, np.random.default_rng(1))
    return ATTACK.measure(claim, w, np.random.default_rng(2))  # type: ignore[arg-type]


@pytest.mark.nightly
def test_a_generator_trained_on_twenty_images_is_detected() -> None:
    area, rate = (one(judged(STEPS), m, score="distance") for m in ("auc", "tpr_at_fpr_0.01"))
    assert rate.trials == 20 and rate.value >= 0.25  # twenty-five times chance; measured 0.45
    assert area.value > 0.85 and area.interval is not None and area.interval[0] > 0.75
    calibrated = one(judged(STEPS), "auc", score="calibrated")
    assert calibrated.interval is not None and calibrated.interval[0] > 0.6
    planted = one(judged(STEPS), "auc", "positive")
    assert planted.interval is not None and planted.interval[0] > 0.6


@pytest.mark.nightly
def test_an_untrained_generator_is_silent_and_so_is_the_control() -> None:
    found = [one(judged(0), "auc", score=s) for s in ("distance", "calibrated")]
    found += [one(judged(steps), "auc", "negative") for steps in (0, STEPS)]
    for area in found:
        assert area.interval is not None and area.interval[0] < 0.5 < area.interval[1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("classes", [0, 3])
def test_a_image_the_generator_made_is_found_again(classes: int) -> None:
    known = KnownGenerators(SHAPE, GanConfig(width=8, latent=4), classes)
    rng = np.random.default_rng(0)
    noise = Examples(x=rng.random((30, *SHAPE), np.float32), y=np.zeros(30, np.int64))
    weights = known.train(noise, 0, rng).generator
    made = known.images(weights, 5, rng)
    search = LatentSearch(known, weights, Settings(steps=200), seed=3)
    found = search(made)
    assert found.image.shape == (5, *SHAPE)
    gaps = np.sqrt(np.square(found.image - made.x).reshape(5, -1).sum(1))
    np.testing.assert_allclose(found.distance, gaps, atol=1e-4)
    assert np.median(found.distance) < 0.2 * np.median(search(noise).distance)


def test_what_cannot_be_searched_is_said_in_a_sentence() -> None:
    w = world(0)
    assert "in the recorded rounds" in ATTACK.not_applicable([], w.knowledge)
    blind = Knowledge(classes=10, shape=SHAPE, generators=KNOWN)
    assert "auxiliary" in ATTACK.not_applicable(w.artifacts, blind)
    with pytest.raises(UserError, match="steps must be >= 4, got 0"):
        configure(LatentInversion, {"steps": 0}, "attacks[0]")
