"""Inversion of activations: near to the images with the layers that made them, and blind under noise."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.batches._inversion import MEAN, RowTruth
from fedaudit.attacks.batches.activation_ridge import ActivationRidge
from fedaudit.attacks.evaluation.batch_readings import BETWEEN, HANDED, RELEASED, list_batches
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import SERVER, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.batches.batch_world import Batches, draw_weights


@cache
def invert(noise: float = 0.0) -> dict[str, Evidence]:
    world, attack = Batches(clients=3, noise=noise), ActivationRidge(ActivationRidge.Config(gallery=20))
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, world, np.random.default_rng(1))  # type: ignore[arg-type]
    return {e.measure: e for e in found if e.condition.get("origin") == "recorded"}


def test_images_come_out_far_nearer_than_the_mean_of_their_class() -> None:
    found = invert()["mse"]
    beside = {b.name: b.value for b in found.baselines}
    assert found.value < 0.2 * beside[CLASS_MEAN] < 0.2 * beside[MEAN]


def test_it_is_least_squares_with_a_penalty_by_the_normal_equations() -> None:
    world = Batches()
    claim = ActivationRidge(ActivationRidge.Config(penalty=3.0)).run(
        world.artifacts, world.knowledge, np.random.default_rng(0)
    )
    batch = list_batches(world.artifacts, 2)[0]
    layers = world.knowledge.architecture(batch.weights).first_layers(1)  # type: ignore[misc]
    z = layers(torch.from_numpy(world.auxiliary.x)).numpy().astype(np.float64)
    mean, std = z.mean(0), z.std(0) + 1e-3
    a, b = (z - mean) / std, world.auxiliary.x.reshape(len(z), -1).astype(np.float64)
    solved = np.linalg.solve(a.T @ a + 3.0 * np.eye(a.shape[1]), a.T @ (b - b.mean(0)))
    images = np.clip((batch.activations - mean) / std @ solved + b.mean(0), 0, 1)
    assert np.allclose(claim["images"][: len(images)].reshape(len(images), -1), images, atol=1e-4)


@pytest.mark.nightly
def test_with_much_noise_it_names_nobody() -> None:
    clear, noised = (invert(noise) for noise in (0.0, 5.0))
    assert clear["named"].value > 0.8
    beside = {b.name: b.value for b in noised["mse"].baselines}
    assert noised["named"].value < 0.2 and noised["mse"].value > beside[CLASS_MEAN]


def test_labels_that_were_kept_do_not_matter_to_the_images() -> None:
    claims = [
        ActivationRidge().run(world.artifacts, world.knowledge, np.random.default_rng(0))
        for world in (Batches(clients=1), Batches(clients=1, labelled=False))
    ]
    assert (claims[0]["images"] == claims[1]["images"]).all()
    assert set(claims[1]["label"].tolist()) == {-1} != set(claims[0]["label"].tolist())


# Which layers made a batch


def test_weights_lie_between_what_was_handed_out_and_what_came_back() -> None:
    world = Batches(clients=1)
    first = next(a for a in world.artifacts if a.kind == Kind.SMASHED and a.origin == "recorded")
    second = replace(first, id=first.id.replace("uplink", "uplink.2"))
    handed, end = draw_weights(0), {k: v + 1 for k, v in draw_weights(0).items()}
    back = replace(first, id="r00003/client-0.uplink.3/local_model", kind=Kind.LOCAL_MODEL, payload=end)
    found = list_batches([*world.artifacts, second, back], 2)
    recorded = [b for b in found if b.artifact.origin == "recorded"]
    assert [b.source for b in recorded] == [HANDED, BETWEEN]
    assert np.allclose(recorded[0].weights["one.bias"], handed["one.bias"])
    assert np.allclose(recorded[1].weights["one.bias"], handed["one.bias"] + 0.5)


def test_where_clients_hand_their_layers_on_the_server_has_those_that_are_released() -> None:
    world = Batches(clients=1)
    model = world.artifacts[0]
    released = replace(model, round=4, channel=Channel.RELEASE, sender=SERVER, seen_by=("public",))
    found = list_batches([released, *world.artifacts[1:]], 2)
    assert {b.source for b in found} == {RELEASED}
    attack = ActivationRidge()
    assert "never reached the server" in attack.not_applicable(world.artifacts[1:], world.knowledge)
    other = replace(model, seen_by=("client/5",), sender=Party.client(4))
    assert "never reached" in attack.not_applicable([other, *world.artifacts[1:]], world.knowledge)


def test_a_cut_that_nobody_stated_is_a_sentence() -> None:
    world = Batches(clients=1)
    unknown: Knowledge = replace(world.knowledge, training={})
    assert "was not stated" in ActivationRidge().not_applicable(world.artifacts, unknown)


def test_a_row_is_one_person_and_a_row_beyond_the_batch_nobody() -> None:
    world = Batches(clients=1)
    name = "r00003/client-0.uplink/smashed"
    truth, batch = RowTruth(world), world.batches[name]  # type: ignore[arg-type]
    label = int(batch.images.y[3])
    assert truth.people(f"{name}#3", label) == {0: batch.rows[3:4]}
    assert len(truth.members(f"{name}#3", label + 1)) == 0
    assert truth.find_label(f"{name}#12") == -1


@pytest.mark.parametrize("part", ["images", "label", "row", "artifact", "sender", "round", "origin"])
def test_a_claim_has_one_entry_for_each_example(part: str) -> None:
    world = Batches(clients=2)
    claim = ActivationRidge().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    assert len(claim[part]) == 2 * (12 + 4)
