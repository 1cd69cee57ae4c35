"""FedRS is FedAvg at alpha = 1, scales missing classes by alpha, and freezes them at alpha = 0."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.methods.class_softmax import FedRS
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct, logit_gradient
from tests.fl.worlds import EVERYONE, close, data, parts, run, same

V1 = [2.0, 1.0, 0.5, -0.5]  # logits; class counts (30, 10, 0, 0), label 0


def fedrs(**settings: Any) -> FedRS:
    return FedRS(FedRS.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def loss_of(scale: list[float]) -> tuple[float, list[float]]:
    const = {"scale": torch.tensor(scale)}
    return logit_gradient(lambda z: fedrs().loss(direct(), z, torch.tensor([0]), const), V1)


def test_alpha_one_is_fedavg_to_the_last_bit() -> None:
    assert same(run(fedrs(alpha=1.0), **WORLD), run(fedavg(), **WORLD))


def test_alpha_below_one_is_not_fedavg() -> None:
    assert not same(run(fedrs(alpha=0.5), **WORLD), run(fedavg(), **WORLD))


def test_without_missing_classes_every_alpha_is_fedavg() -> None:
    d = data()
    world = {"d": d, "index": parts(d, skew=False), "script": [([0, 1, 2, 4], [1, 2, 4])]}
    for index in (1, 2, 4):
        assert len(set(d.train.y[world["index"][index]].tolist())) == 4  # type: ignore[index]
    assert same(run(fedrs(alpha=0.1), **world), run(fedavg(), **world))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "value", "gradient"),
    [
        ([1, 1, 1, 1], 0.514675, [-0.402305, 0.219880, 0.133364, 0.049062]),
        ([1, 1, 0.5, 0.5], 0.498987, [-0.392855, 0.223356, 0.052753, 0.031996]),
        ([1, 1, 0, 0], 0.493812, [-0.389704, 0.224515, 0, 0]),
        ([1, 2 / 3, 0.5, 0.5], 0.433580, [0.648185 - 1, 0.113907, 0.056319, 0.034159]),
    ],
)
def test_the_loss_and_its_gradient_are_the_ones_on_paper(
    scale: list[float], value: float, gradient: list[float]
) -> None:
    found, slope = loss_of(scale)
    assert found == pytest.approx(value, abs=1e-5)
    assert slope == pytest.approx(gradient, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, [1.0, 1.0, 0.5, 0.5]),
        ({"soft": True}, [1.0, 2 / 3, 0.5, 0.5]),
        ({"missing_below": 11}, [1.0, 0.5, 0.5, 0.5]),
    ],
)
def test_the_scale_follows_the_class_counts(settings: dict[str, Any], scale: list[float]) -> None:
    class Holder:
        counts = torch.tensor([30, 10, 0, 0])

    found = fedrs(**settings).compute_constants(Holder())["scale"]  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx(scale)


def test_soft_is_hard_where_owned_classes_are_equally_large() -> None:
    class Holder:
        counts = torch.tensor([0, 7, 7, 0])

    hard, soft = (fedrs(soft=s).compute_constants(Holder())["scale"] for s in (False, True))  # type: ignore[arg-type]
    assert hard.tolist() == soft.tolist()


def test_alpha_zero_freezes_the_rows_of_missing_classes() -> None:
    """Client 0 owns class 0 only; with decay off, or kept off those rows, the others stay exactly."""
    script = [([0], [0])]
    for settings in ({"weight_decay": 0.0}, {"freeze_missing_wd": True}):
        world = run(fedrs(alpha=0.0, **settings), script=script)
        moved = (world["head.weight"] != world.initial["head.weight"]).any(1)
        assert moved.tolist() == [True, False, False, False]
    decayed = run(fedrs(alpha=0.0), script=script)
    assert (decayed["head.weight"] != decayed.initial["head.weight"]).all()


def test_a_small_client_makes_whole_passes_until_it_has_its_least_steps() -> None:
    """Batches of 8: clients of 7 and 20 have 1 and 3 a pass, and take 5 and 6 steps for a floor of 5."""
    once = {"local_epochs": 1, "rounds": 1}
    for client, passes in ((0, 5), (1, 2)):
        script = [([client], [client])]
        floor = run(fedrs(**once, least_steps=5), script=script)
        assert same(floor, run(fedrs(**once | {"local_epochs": passes}), script=script))
        assert floor.history[-1]["steps"] == {0: 5, 1: 6}[client]
    assert same(run(fedrs(least_steps=2), script=[([4], [4])]), run(fedrs(), script=[([4], [4])]))


def test_the_floor_of_steps_is_the_same_for_clients_stacked_as_one() -> None:
    index = [np.arange(k, 60, 6)[:5] for k in range(5)]
    alone, stacked = (
        run(fedrs(local_epochs=1, least_steps=5), index=index, script=EVERYONE, workers=w) for w in (0, "batched")
    )
    assert close(alone, stacked, 1e-5) and stacked.history[-1]["steps"] == 5


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(fedrs, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(fedrs(), script=EVERYONE), run(fedrs(), script=EVERYONE, workers=2))


@pytest.mark.parametrize(("key", "value"), [("alpha", 1.5), ("alpha", -0.1), ("missing_below", 0)])
def test_settings_out_of_range_are_refused(key: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{key} must be"):
        fedrs(**{key: value})
