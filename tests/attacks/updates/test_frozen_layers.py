"""Frozen layers: what is left out is not read, the class stays known, and the image goes with the dense layer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.gradients import Update, updates
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.frozen_layers import (
    FrozenLayers,
    GradientScorer,
    choose_spread,
    of_layers,
    withheld,
)
from fedaudit.audit.verdict.figures import by_frozen
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.gradients import Planted

WORLD = Planted(groups=6, kind=Kind.UNFROZEN_LAYERS)
LAYERS = [["conv.weight", "conv.bias"], ["wide.weight", "wide.bias"], ["head.weight", "head.bias"]]


@pytest.fixture(scope="module")
def found() -> list[Evidence]:
    attack = FrozenLayers(FrozenLayers.Config(replays=6, inverted=2, iterations=40, others=10))
    claim = attack.run(WORLD.artifacts, WORLD.knowledge, np.random.default_rng(0))
    return attack.measure(claim, WORLD, np.random.default_rng(1))  # type: ignore[arg-type]


def value(found: list[Evidence], measure: str, frozen: int, **condition: Any) -> float:
    [one] = [
        e
        for e in found
        if e.measure == measure
        and e.control != "negative"
        and e.condition.items() >= {"frozen": frozen, **condition}.items()
    ]
    return one.value


def update() -> Update:
    return updates(WORLD.artifacts, WORLD.knowledge)[0]


def test_people_are_flagged_by_the_layers_that_their_client_sends_and_plants_lack_as_many() -> None:
    world = Planted(groups=10, kind=Kind.UNFROZEN_LAYERS, recorded=5)
    view = [replace(a, kind=Kind.UNFROZEN_LAYERS) if a.kind == Kind.LOCAL_MODEL else a for a in world.artifacts]
    kept = {k: v for k, v in view[-1].payload.items() if k.startswith("head")}
    view[-1] = replace(view[-1], payload=kept)
    rng = np.random.default_rng(2)  # what the last client does not send is no use, so it may hold anything
    for i, a in enumerate(view):
        if a.origin == "replayed" and a.sender.index == 4:
            spoilt = {k: v if k in kept else v + rng.normal(size=v.shape) for k, v in a.payload.items()}
            view[i] = replace(a, payload={k: v.astype(np.float32) for k, v in spoilt.items()})
    attack = FrozenLayers(FrozenLayers.Config(replays=1, inverted=0, others=10))
    claim = attack.run(view, world.knowledge, np.random.default_rng(0))
    people, _ = attack.count_people(claim, world, np.random.default_rng(0))
    assert set(people.tested) == set(range(5))
    assert {k: s.trials for k, s in people.planted.items()} == dict.fromkeys(range(5), 2)
    assert sum(s.hits for s in people.planted.values()) >= 9


def test_whoever_is_read_every_client_is_before_any_is_read_twice() -> None:
    clients, rng = [0, 0, 0, 1, 1, 2], np.random.default_rng(0)
    for most, expected in ((2, 2), (3, 3), (5, 3), (9, 3)):
        chosen = choose_spread(clients, most, rng)
        assert len(chosen) == min(most, 6) and len({clients[i] for i in chosen}) == expected
    assert sorted(clients[i] for i in choose_spread(clients, 5, rng)) == [0, 0, 1, 1, 2]


def test_layers_go_from_the_input_to_the_head_and_the_first_ones_are_left_out() -> None:
    assert of_layers(update(), WORLD.knowledge) == LAYERS
    assert set(withheld(update(), 2, WORLD.knowledge).gradient) == set(LAYERS[2])


def test_a_product_over_the_layers_left_is_that_of_an_update_that_never_had_the_others() -> None:
    images = Examples(x=WORLD.reference.x[:3], y=WORLD.reference.y[:3])
    whole = GradientScorer(update(), WORLD.knowledge)(images).cosines(1)
    left = GradientScorer(withheld(update(), 1, WORLD.knowledge), WORLD.knowledge)(images).cosines(0)
    assert whole == pytest.approx(left, abs=1e-6) and len(set(whole)) == 3


@pytest.mark.nightly
def test_the_class_and_who_was_in_it_stay_known_however_many_layers_are_left_out(found: list[Evidence]) -> None:
    for n in range(3):
        assert value(found, "label_set_exact_match", n) == 1
        assert value(found, "auc", n) > 0.9


def test_an_image_is_found_by_division_until_the_dense_layer_is_left_out(found: list[Evidence]) -> None:
    assert [value(found, "named", n, by="division") for n in range(3)] == [1, 1, 0]
    assert value(found, "named", 0, by="inversion") == 1


def test_a_network_of_one_layer_has_nothing_to_leave_out() -> None:
    attack = FrozenLayers()
    assert "no client sends layers" in attack.not_applicable([], WORLD.knowledge)
    head = [replace(a, kind=Kind.LOCAL_MODEL) for a in WORLD.artifacts if a.kind != Kind.GLOBAL_MODEL]
    assert "no client sends layers" in attack.not_applicable(head, WORLD.knowledge)


def test_the_figure_has_a_line_for_each_attack_and_one_of_guessing_for_each_height(found: list[Evidence]) -> None:
    [figure] = by_frozen("F1", found)
    names = [s.name for s in figure.series]
    assert names[:4] == [
        "membership (AUC), replayed",
        "class known, replayed",
        "image, by division, replayed",
        "image, by inversion, replayed",
    ]
    assert all(list(s.x) == [0, 1, 2] for s in figure.series)
    assert [s.y[0] for s in figure.series if s.blind] == [0.5, pytest.approx(0.11, abs=0.03), 0.1]
    assert by_frozen("F1", [e for e in found if e.condition.get("frozen") == 0]) == []
