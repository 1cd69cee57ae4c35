"""Refined condensed images: nearer to the image, a decoder's gain measured, and nothing from noise."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples, Floats, Knowledge
from fedaudit.attacks.condensed._images import REAL_START, standardise
from fedaudit.attacks.condensed._model import CondensationModel, filter_frequencies, share
from fedaudit.attacks.condensed.condensed_refinement import CondensedRefinement
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.condensed.condensed_world import CondensedWorld

QUICK = {"condensed": 24, "epochs": 5, "least_steps": 300, "width": 64, "batch": 64}


class NoisyWorld(CondensedWorld):
    """Condensed images of noise as strong as the images, as few iterations leave it."""

    def image(self, images: Floats, rng: np.random.Generator) -> Floats:
        less: Floats = super().image(images, rng)
        return less + 0.8 * rng.standard_normal(less.shape).astype(np.float32)


class MeanCondenser:
    """Condenses as the test world does; withholds every `gap`-th image."""

    def __init__(self, world: CondensedWorld, gap: int = 10**9) -> None:
        self.world, self.gap = world, gap

    def __call__(self, groups: Sequence[Examples], seed: int) -> Floats:
        rng = np.random.default_rng(seed)
        made = np.stack([self.world.image(g.x, rng) for g in groups])
        made[self.gap - 1 :: self.gap] = np.nan
        return made


@cache
def world(blank: bool = False) -> CondensedWorld:
    return NoisyWorld(sizes=(1, 10), blank=blank)


def knowledge(blank: bool = False, gap: int = 10**9) -> Knowledge:
    return replace(world(blank).knowledge, condenser=MeanCondenser(world(blank), gap))


@cache
def measured(decoder: str = "upcnn", blank: bool = False) -> tuple[Evidence, ...]:
    here = world(blank)
    attack = CondensedRefinement(CondensedRefinement.Config(decoder=decoder, **QUICK))  # type: ignore[arg-type]
    claim = attack.run(here.artifacts, knowledge(blank), np.random.default_rng(0))
    return tuple(attack.measure(claim, here, np.random.default_rng(0)))


def one(measure: str, decoder: str = "upcnn", blank: bool = False, **where: object) -> Evidence:
    (found,) = [
        e
        for e in measured(decoder, blank)
        if e.measure == measure
        and all(e.condition.get(k) == v for k, v in where.items())
        and e.control != "negative"
        and e.condition
    ]
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", ["upcnn", "vae"])
def test_a_refined_image_is_nearer_to_the_image_than_the_condensed_one(decoder: str) -> None:
    gain = one("ssim_over_condensed", decoder, n=1, origin="replayed")
    assert gain.interval is not None and gain.interval[0] > 0.02
    apart = one("audit_net_distance_over_condensed", decoder, n=1, origin="replayed")
    assert apart.value < 0 and not apart.higher_is_worse
    found = one("rank1", decoder, n=1, origin="replayed")
    assert found.interval is not None
    assert found.interval[0] > max(b.value for b in found.baselines)


def test_a_real_start_is_the_planted_leak_and_is_found() -> None:
    found = one("rank1", origin=REAL_START)
    assert found.control == "positive" and found.interval is not None
    assert found.interval[0] > max(b.value for b in found.baselines)


def test_the_shuffled_input_and_the_class_mean_stand_beside_it() -> None:
    found = one("rank1", n=1, origin="replayed")
    blind = {b.name: b.value for b in found.baselines}
    assert blind["wrong condensed image, same class"] < 0.2
    assert blind["class mean of auxiliary data"] < 0.2


@pytest.mark.nightly
@pytest.mark.parametrize("blank", [False, True])
def test_negative_controls_do_not_fire(blank: bool) -> None:
    (found,) = [e for e in measured("upcnn", blank) if e.control == "negative"]
    assert found.interval is not None and found.interval[0] <= found.baselines[0].value


def test_noise_gives_chance_at_every_n() -> None:
    for n in (1, 10):
        found = one("rank1", blank=True, n=n, origin="replayed")
        assert found.interval is not None
        assert found.interval[0] <= max(b.value for b in found.baselines)


def test_the_share_of_a_filtered_image_is_its_filter() -> None:
    x = np.random.default_rng(0).standard_normal((5, 2, 8, 8))
    gain = np.linspace(1, 0.2, 7)
    np.testing.assert_allclose(share(filter_frequencies(x, gain), x), gain, atol=1e-9)
    np.testing.assert_allclose(filter_frequencies(x, np.ones(7)), x, atol=1e-12)


def test_a_model_of_noise_learns_its_power_and_repeats_itself() -> None:
    rng = np.random.default_rng(0)
    x = standardise(world().auxiliary.x[:200])
    model = CondensationModel(x, x + 0.5 * rng.standard_normal(x.shape), 3)
    # white noise of deviation 0.5 beside images of deviation 1, scaled back to a deviation of 1
    assert np.sqrt((model.noise**2).mean()) == pytest.approx(0.5 / np.sqrt(1.25), rel=0.15)
    first = model.features(x)
    assert np.array_equal(first, model.features(x)) and first.shape == (200, 64)
    correlation = (first.reshape(x.shape) * x).mean()
    assert correlation == pytest.approx(1 / np.sqrt(1.25), abs=0.03)


def test_images_that_a_protection_withheld_are_left_out_and_none_is_a_sentence() -> None:
    attack = CondensedRefinement(CondensedRefinement.Config(**QUICK))
    claim = attack.run(world().artifacts, knowledge(gap=2), np.random.default_rng(0))
    assert np.isfinite(claim["images"]).all()
    with pytest.raises(UserError, match="let no condensed image"):
        attack.run(world().artifacts, knowledge(gap=1), np.random.default_rng(0))


@pytest.mark.nightly
def test_galleries_show_the_condensed_beside_the_refined() -> None:
    attack = CondensedRefinement(CondensedRefinement.Config(**QUICK))
    claim = attack.run(world().artifacts, knowledge(), np.random.default_rng(0))
    galleries = attack.galleries(claim, world())
    assert galleries and all({"condensed", "refined"} <= set(g.rows) for g in galleries)
    assert all(len(x) == len(g.columns) for g in galleries for x in g.rows.values())


def test_without_a_condensation_to_repeat_it_does_not_apply() -> None:
    attack = CondensedRefinement()
    assert "could repeat" in attack.not_applicable(world().artifacts, world().knowledge)
    assert attack.not_applicable(world().artifacts, knowledge()) == ""
    assert "no condensed" in attack.not_applicable([], knowledge())


def test_settings_without_a_meaning_are_refused() -> None:
    with pytest.raises(UserError, match="condensed must be >= 4, got 1"):
        configure(CondensedRefinement, {"condensed": 1}, "attacks[0]")
    with pytest.raises(UserError, match="width must be a multiple of 32, got 100"):
        configure(CondensedRefinement, {"width": 100}, "attacks[0]")
