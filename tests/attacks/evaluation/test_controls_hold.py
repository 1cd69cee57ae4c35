"""Negative controls fire no more often than they say where messages tell nothing.

Found by null audits of prototypes of noise, whose controls fired in every second audit: scores of one prototype,
client or model depend on each other, and their levels differ; a control has to allow for both.
"""

import numpy as np
import pytest

from fedaudit.attacks.attack import Claim, Floats
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_linkage import PrototypeLinkage
from fedaudit.fl.runtime.settings import settings
from tests.attacks.world import World

AUDITS = 20


class Levels(PrototypeLinkage):
    """Prototypes of noise far from any image: which is likeliest, it is for every image, by a draw."""

    @settings
    class Config(PrototypeLinkage.Config):
        seed: int = 0

    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        return np.full(len(features), np.random.default_rng((self.config.seed, row)).normal())


def fired(e: Evidence) -> bool:
    """Whether its interval leaves out chance; the policy asks for the upper side alone."""
    assert e.interval is not None and e.strongest is not None
    return not e.interval[0] <= e.strongest.value <= e.interval[1]


@pytest.mark.nightly
def test_a_prototype_that_is_likeliest_for_every_image_is_one_trial_and_not_many() -> None:
    world, fires = World(sizes=(2,), clients=10, groups=40), 0
    claim = PrototypeLinkage().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    for seed in range(AUDITS):
        found = Levels(Levels.Config(seed=seed)).measure(claim, world, np.random.default_rng(seed))
        (control,) = [e for e in found if e.control == "negative"]
        fires += fired(control)
    assert fires <= 2  # three of twenty for a control that fires once in a hundred: one chance in a thousand


def test_groups_of_unlike_level_say_nothing_when_their_halves_are_pooled() -> None:
    rng = np.random.default_rng(0)
    # every group has one score for all: pooled halves are told apart only by how many of each there are
    levels = [np.full(size, float(size)) for size in (2, 3, 5, 9, 20)]
    first, second = zip(*(membership.halves(level, rng) for level in levels), strict=True)
    area = membership.evidence(membership.score_clusters(first, second), {}, control="negative")[0]
    assert area.value == pytest.approx(0.5, abs=1e-12)


def test_halves_are_drawn_anew_and_hold_each_score_once() -> None:
    rng, scores = np.random.default_rng(0), np.arange(10.0)
    draws = [membership.halves(scores, rng) for _ in range(3)]
    assert all(sorted([*a, *b]) == scores.tolist() for a, b in draws)
    assert len({tuple(a) for a, _ in draws}) == 3
