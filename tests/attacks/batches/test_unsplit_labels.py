"""Labels from what clients send back: all where the server has the last layer, none where it draws one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.batches.unsplit_labels import RANDOM_HEAD, Heads, UnsplitLabels
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from tests.attacks.batches.batch_world import Gradients, SentBack


def infer(world: SentBack) -> Claim:
    return UnsplitLabels().run(world.artifacts, world.knowledge, np.random.default_rng(0))


def judge(world: SentBack) -> dict[str, Evidence]:
    found = UnsplitLabels().measure(infer(world), world, np.random.default_rng(1))  # type: ignore[arg-type]
    return {e.control: e for e in found}


def count_right(world: SentBack) -> float:
    claim = infer(world)
    named = claim["distances"].argmin(axis=1)
    true = np.concatenate([world.batches[a].images.y for a in dict.fromkeys(claim["artifact"].tolist())])
    return float((named == true).mean())


def test_under_a_head_that_is_released_every_label_is_named() -> None:
    found = judge(world := SentBack())
    assert count_right(world) > 0.99
    assert found["none"].value > 0.99 and found["positive"].value > 0.99
    assert {b.name: b.value for b in found["none"].baselines}[RANDOM_HEAD] < 0.75


def test_under_a_head_that_it_draws_no_label_has_a_name_and_its_plant_says_so() -> None:
    found = judge(world := SentBack(released=False))
    assert count_right(world) < 0.4
    assert found["positive"].value < 0.75


def test_gradients_are_those_of_the_mean_loss_by_hand() -> None:
    heads, h = Heads(SentBack(clients=1).knowledge), np.eye(2, 24, dtype=np.float32)
    layer, _ = heads._build(None, 3)
    with torch.no_grad():
        p = torch.softmax(layer(torch.from_numpy(h)), 1).numpy()
        w = layer.weight.numpy()
    expected = (p - np.eye(10)[[4, 7]]) @ w / 2
    [sent] = heads.send([(h, np.array([4, 7]))], 3)
    assert np.allclose(sent, expected, atol=1e-6)
    near = heads.measure([(h, sent)], None, 3, 0.0)[0]
    assert near.argmin(axis=1).tolist() == [4, 7] and np.allclose(near[[0, 1], [4, 7]], 0)


def test_the_head_steps_along_the_labels_that_it_named() -> None:
    heads, rng = Heads(SentBack(clients=1).knowledge), np.random.default_rng(0)
    h = rng.normal(size=(8, 24)).astype(np.float32)
    pairs = [(h, *heads.send([(h, np.arange(8))], 3))] * 2
    still, moved = (heads.measure(pairs, None, 5, lr) for lr in (0.0, 0.1))
    assert (still[0] == still[1]).all() and (still[0] == moved[0]).all() and (moved[0] != moved[1]).any()
    layer, _ = heads._build(None, 5)
    loss = cross_entropy(layer(torch.from_numpy(h)), torch.from_numpy(still[0].argmin(axis=1)))
    assert float(loss.detach()) > 0


def test_everybody_in_a_batch_is_counted_with_the_luck_of_labels_in_random_order() -> None:
    world = SentBack()
    people, clients = UnsplitLabels().count_people(infer(world), world, np.random.default_rng(1))  # type: ignore[arg-type]
    assert clients.harm is Harm.CLIENT_FACT and set(clients.tested) == set(range(6))
    assert {k: len(rows) for k, rows in people.tested.items()} == dict.fromkeys(range(6), 80)
    assert sum(map(len, people.hit.values())) > 475 and people.luck.hits / people.luck.trials < 0.2


@pytest.mark.parametrize("left", [Kind.SMASHED, Kind.SMASHED_GRADIENT])
def test_without_what_was_passed_on_or_what_came_back_it_says_so(left: Kind) -> None:
    world = SentBack(clients=1)
    rest = [a for a in world.artifacts if a.kind != left]
    assert "no client sends back" in UnsplitLabels().not_applicable(rest, world.knowledge)
    down = [replace(a, channel=Channel.DOWNLINK) for a in Gradients().artifacts]
    assert "no client sends back" in UnsplitLabels().not_applicable(down, world.knowledge)
