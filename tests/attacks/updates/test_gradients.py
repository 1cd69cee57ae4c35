"""What an upload tells of its gradient, and the attacker's imitation of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import spatial

from fedaudit.attacks.evaluation.gradients import (
    Imitation,
    cosine_distance,
    distance_to_multiple,
    labels,
    squared_distance,
    updates,
)
from fedaudit.attacks.evaluation.sources import uploads
from fedaudit.attacks.updates.inverting_gradients import roughness
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.gradients import Planted, gradient


@pytest.mark.parametrize(
    "kind", [Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GRADIENT, Kind.NORMALIZED_DELTA, Kind.CONTROL_DELTA]
)
def test_one_step_gives_the_gradient_whatever_is_uploaded(kind: Kind) -> None:
    world = Planted(((2, 1),), groups=1, kind=kind)
    (update,) = updates(world.artifacts, world.knowledge)
    own = world.groups[update.artifact]
    true = gradient(world.start, own, world._labels[update.artifact])
    for name, g in true.items():
        np.testing.assert_allclose(update.gradient[name], g, atol=2e-6)
    assert (update.batch, update.examples, update.steps) == (2, 2, 1)


def test_weight_decay_is_taken_off_and_momentum_counts_as_further_steps() -> None:
    world = Planted(((1, 1), (1, 2)), groups=1)
    decayed = []
    for a in world.artifacts:
        if a.origin == "replayed":  # as if the weights had shrunk by rate times decay as well
            a = replace(a, payload={n: v - 0.1 * 0.5 * world.start[n] for n, v in a.payload.items()})
        decayed.append(a)
    training = {**world.knowledge.training, "weight_decay": 0.5}
    plain = updates(world.artifacts, world.knowledge)[0]
    found = updates(decayed, replace(world.knowledge, training=training))[0]
    for name in plain.gradient:
        np.testing.assert_allclose(found.gradient[name], plain.gradient[name], atol=1e-5)
    slow = {**world.knowledge.training, "momentum": 0.9}
    two = [
        updates(world.artifacts, replace(world.knowledge, training=t))[1]
        for t in (world.knowledge.training, slow)
    ]
    # two steps of a constant gradient: 2 without momentum, 1 + 1.9 with it
    np.testing.assert_allclose(two[0].gradient["head.bias"] * 2, two[1].gradient["head.bias"] * 2.9, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_imitation_of_the_true_images_is_the_gradient_of_the_upload(steps: int) -> None:
    world = Planted(((4, steps),), groups=1)
    (update,) = updates(world.artifacts, world.knowledge)
    copy = Imitation(update, world.knowledge)
    x = torch.from_numpy(world.groups[update.artifact])
    y = torch.from_numpy(world._labels[update.artifact])
    right = [g.detach() for g in copy.descent(x, y, steps)]
    assert float(cosine_distance(right, copy.target)) < 1e-5
    wrong = [g.detach() for g in copy.descent(1 - x, y, steps)]
    assert float(cosine_distance(wrong, copy.target)) > 0.01
    assert float(squared_distance(right, copy.target)) < 1e-3 * float(squared_distance(wrong, copy.target))


def test_labels_of_one_example_are_exact_and_those_of_a_batch_sum_to_it() -> None:
    world = Planted(((1, 1), (4, 1)), groups=20)
    for update in updates(world.artifacts, world.knowledge):
        found = labels(update, world.knowledge, update.batch)
        assert found is not None and len(found) == update.batch
        if update.batch == 1:
            assert found.tolist() == world._labels[update.artifact].tolist()


def test_an_upload_without_its_starting_model_or_without_change_says_nothing() -> None:
    world = Planted(groups=1)
    start, sent = world.artifacts
    assert updates([sent], world.knowledge) == []
    assert updates([replace(start, round=3), replace(sent, round=4)], world.knowledge) == []
    assert updates([start, replace(sent, payload=start.payload)], world.knowledge) == []


def test_without_a_head_in_the_upload_there_are_no_labels() -> None:
    world = Planted(groups=1)
    start, sent = world.artifacts
    body = {k: v for k, v in sent.payload.items() if not k.startswith("head")}
    (update,) = updates([start, replace(sent, payload=body)], world.knowledge)
    assert labels(update, world.knowledge, 1) is None
    assert len(Imitation(update, world.knowledge).target) == 4


def test_cosine_and_squared_distance_by_hand() -> None:
    a, b = ([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], [torch.tensor([0.0, 5.0]), torch.zeros(1)])
    assert float(cosine_distance(a, a)) == pytest.approx(0, abs=1e-6)
    assert float(cosine_distance(a, b)) == 1
    assert float(squared_distance(a, b)) == 50
    assert float(distance_to_multiple([3 * v for v in a], a)) == 0
    assert float(distance_to_multiple(a, b)) == float(squared_distance(a, [0 * v for v in b]))  # at right angles


def test_a_client_that_says_the_same_twice_is_read_where_it_says_it_with_less_noise() -> None:
    world = Planted(((1, 1),), groups=1)
    [sent] = [a for a in world.artifacts if a.kind == Kind.LOCAL_MODEL]
    message = "r00000/client-0.uplink"
    twice = [
        replace(sent, id=f"{message}/{k}", kind=k, origin="recorded")
        for k in (Kind.CONTROL_DELTA, Kind.MODEL_DELTA)
    ]
    assert [a.kind for a in uploads(twice, {})] == [Kind.MODEL_DELTA]
    assert [a.kind for a in uploads(twice, {"noise_std.model_delta": 0.1})] == [Kind.CONTROL_DELTA]


def test_the_loss_of_inverting_gradients_is_that_of_a_second_program() -> None:
    # arXiv:2003.14053, eq. 4, number by number: 1 - <a, b> / |a| |b|, and the mean absolute step to a neighbour
    rng = np.random.default_rng(0)
    ours, theirs = ([rng.normal(size=s) for s in ((3, 2), (4,))] for _ in range(2))
    a, b = (np.concatenate([g.ravel() for g in some]) for some in (ours, theirs))
    apart = cosine_distance([torch.tensor(g) for g in ours], [torch.tensor(g) for g in theirs])
    assert float(apart) == pytest.approx(spatial.distance.cosine(a, b), abs=1e-12)
    x = rng.random((2, 1, 3, 4))
    down = [abs(i[0, r + 1, c] - i[0, r, c]) for i in x for r in range(2) for c in range(4)]
    across = [abs(i[0, r, c + 1] - i[0, r, c]) for i in x for r in range(3) for c in range(3)]
    assert float(roughness(torch.tensor(x))) == pytest.approx(np.mean(down) + np.mean(across), abs=1e-12)
