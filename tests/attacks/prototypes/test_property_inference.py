"""A subgroup of a class is seen in small prototypes; constants and shuffled answers show nothing."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes._subgroups import Property, find
from fedaudit.attacks.prototypes.property_inference import PropertyInference, draw
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import World


@cache
def world() -> World:
    return World(sizes=(1, 4), clients=10, groups=100)


def judged(view: list[Artifact], subgroup: Property = "cluster") -> list[Evidence]:
    attack = PropertyInference(PropertyInference.Config(subgroup=subgroup, simulated=100))
    claim = attack.run(view, world().knowledge, np.random.default_rng(0))
    return attack.measure(claim, world(), np.random.default_rng(1))


@cache
def plain(subgroup: Property = "cluster") -> list[Evidence]:
    return judged(world().artifacts, subgroup)


def auc(found: list[Evidence], n: float) -> Evidence:
    return next(e for e in found if e.measure == "property_auc" and e.condition.get("n") == n)


@pytest.mark.nightly
@pytest.mark.parametrize("subgroup", ["cluster", "brightness"])
def test_a_subgroup_is_seen_in_one_image_and_less_in_four(subgroup: Property) -> None:
    one, four = auc(plain(subgroup), 1), auc(plain(subgroup), 4)
    assert one.value > 0.85 and one.value > four.value > 0.6
    assert one.interval is not None and one.interval[0] > 0.5


def test_the_planted_subgroup_is_found_and_shuffled_answers_are_not() -> None:
    (planted,) = [e for e in plain() if e.control == "positive"]
    assert planted.interval is not None and planted.interval[0] > 0.5
    (control,) = [e for e in plain() if e.control == "negative"]
    assert control.interval is not None and control.interval[0] <= 0.5 <= control.interval[1]


@pytest.mark.nightly
def test_prototypes_without_information_show_nothing() -> None:
    constant = [
        replace(a, payload={**a.payload, "features": np.ones_like(a.payload["features"])})
        if a.kind == Kind.LOCAL_PROTOTYPES
        else a
        for a in world().artifacts
    ]
    low = auc(judged(constant), 1).interval
    assert low is not None and low[0] < 0.5


def test_groups_have_the_subgroup_or_have_it_not() -> None:
    rng, inside = np.random.default_rng(0), np.array([True, False, False, False, False])
    for _ in range(50):
        assert inside[draw(inside, 2, True, rng)].any()
        assert not inside[draw(inside, 2, False, rng)].any()
    assert sorted(draw(inside, 4, False, rng)) == [1, 2, 3, 4]  # without repetition
    assert len(draw(inside, 9, False, rng)) == 9  # with, where there are too few


def test_subgroups_by_hand() -> None:
    dark, bright = np.zeros((8, 1, 2, 2), np.float32), np.ones((2, 1, 2, 2), np.float32)
    images = np.concatenate([dark, bright])
    for kind in ("cluster", "brightness"):
        found = find(images, kind, 2, np.random.default_rng(0))
        assert found.holds(np.concatenate([bright[:1], dark[:1]])).tolist() == [True, False]


def test_refusals() -> None:
    with pytest.raises(UserError, match="clusters must be >= 2, got 1"):
        configure(PropertyInference, {"clusters": 1}, "attacks[0]")
    picky = PropertyInference(PropertyInference.Config(least_auxiliary=10_000))
    with pytest.raises(UserError, match="enough auxiliary images"):
        picky.run(world().artifacts, world().knowledge, np.random.default_rng(0))
    silent = [a for a in world().artifacts if a.kind != Kind.LOCAL_PROTOTYPES]
    assert "no model was recorded" in PropertyInference().not_applicable(silent, world().knowledge)
