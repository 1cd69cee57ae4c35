"""UnSplit: images through a convolution that the server has never seen, and none where there are none."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Claim, Knowledge
from fedaudit.attacks.batches.unsplit import RANDOM_CLONE, Unsplit, draw_clone, total_variation
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.batches.batch_world import Batches, Convolved, Gradients

QUICK = {"gallery": 20, "image_steps": 10, "clone_steps": 10, "lr": 0.05, "clone_lr": 0.005}


def make(**settings: float) -> Unsplit:
    return Unsplit(Unsplit.Config(**{**QUICK, **settings}))  # type: ignore[arg-type]


def invert(world: Convolved, **settings: float) -> Claim:
    return make(**settings).run(world.artifacts, world.knowledge, np.random.default_rng(0))


@cache
def read() -> tuple[Convolved, Claim]:
    world = Convolved(clients=1)
    return world, invert(world)


@cache
def measure() -> list[Evidence]:
    world, claim = read()
    return make().measure(claim, world, np.random.default_rng(1))  # type: ignore[arg-type]


def find(measured: str, control: str = "none") -> Evidence:
    return next(e for e in measure() if (e.measure, e.control) == (measured, control))


def test_total_variation_is_that_of_the_page() -> None:
    assert float(total_variation(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]))) == 5.0


def test_images_come_out_nearer_than_the_class_mean_and_than_by_a_random_clone() -> None:
    error, named = find("mse"), find("named")
    beside = {b.name: b.value for b in error.baselines}
    assert error.value < 0.6 * beside[CLASS_MEAN] < 0.6 * beside[RANDOM_CLONE]
    assert named.value > 0.6 and all(b.value < 0.2 for b in named.baselines)


def test_of_layers_that_nobody_trained_it_finds_planted_images_as_blindly() -> None:
    planted = find("named", "positive")
    assert planted.trials == 48 and planted.value > 0.5
    assert {b.name: b.value for b in planted.baselines}[RANDOM_CLONE] < 0.1


def test_numbers_that_are_made_of_nothing_show_no_image() -> None:
    nothing = Convolved(clients=1, noise=True)
    [batch] = nothing.batches.values()
    errors = [
        float(np.square(claim["images"] - batch.images.x).mean())
        for claim in (read()[1], invert(nothing, rounds=10))
    ]
    assert errors[0] < 0.04 < float(np.square(batch.images.x - batch.images.x.mean(axis=0)).mean()) < errors[1]


def test_features_of_every_example_are_read_as_activations_are() -> None:
    claims = [invert(Convolved(kind, clients=1), rounds=2) for kind in (Kind.FEATURES, Kind.SMASHED)]
    assert (claims[0]["images"] == claims[1]["images"]).all()
    assert [set(claim["kind"].tolist()) for claim in claims] == [{"features"}, {"smashed"}]


def test_a_clone_that_does_not_move_is_the_random_one() -> None:
    world = Convolved(clients=1)
    claim = invert(world, clone_steps=0, rounds=2)
    assert (claim["images"] == claim["random_clone"]).all()
    moved = invert(world, rounds=2)
    assert (moved["random_clone"] == claim["random_clone"]).all() and (moved["images"] != claim["images"]).any()


def test_without_a_step_every_image_is_grey_and_the_first_step_is_adams() -> None:
    known, z = Convolved(clients=1).knowledge, np.zeros((2, 512), np.float32)
    asked = [draw_clone(known, Kind.SMASHED, z, 1, learns=False)]
    assert (asked[0].start[0] == 0.5).all()
    [found] = make(rounds=1, image_steps=1, lr=0.03).search(asked, "cpu")
    assert np.allclose(np.abs(found - 0.5), 0.03, atol=1e-4)  # of Adam's first step the length is the rate


def test_so_many_examples_of_a_client_at_most_are_redrawn_evenly() -> None:
    world = Convolved(clients=2, size=40)
    claim = invert(world, examples=4, rounds=1)
    assert claim["row"].tolist() == [0, 13, 26, 39] * 2 and claim["sender"].tolist() == [0] * 4 + [1] * 4


def test_what_it_cannot_read_is_a_sentence() -> None:
    world = Convolved(clients=1)
    unknown: Knowledge = replace(world.knowledge, training={})
    assert "was not stated" in make().not_applicable(world.artifacts, unknown)
    assert "no client sent" in make().not_applicable(Gradients().artifacts[:1], world.knowledge)
    replayed = [a for a in Batches(clients=1).artifacts if a.origin == "replayed"]
    assert "no client sent" in make().not_applicable(replayed, world.knowledge)


def test_total_variation_and_darkness_have_weights() -> None:
    world = Convolved(clients=1)
    dark = [float(invert(world, rounds=4, dark=weight)["images"].mean()) for weight in (0.0, 1.0)]
    smooth = [np.abs(np.diff(invert(world, rounds=4, smooth=weight)["images"])).mean() for weight in (0.0, 1.0)]
    assert dark[1] < 0.8 * dark[0] and smooth[1] < 0.8 * smooth[0]
    with pytest.raises(UserError, match="smooth"):
        make(smooth=-1)
