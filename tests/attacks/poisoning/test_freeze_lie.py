"""Lies about frozen layers: nobody compromised is the clean run, and each lie reaches the layers it is about."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.poisoning.freeze_lie import FreezeLie
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.families.layers import layers
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.freezefl import FreezeFL
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import EVERYONE, TinyNet, World, run, same

TIMES = TimeModel(
    capability=np.array([0.5, 1.0, 3.0, 1.0, 2.0]), workload=Counted().workload(TinyNet(), (1, 6, 6))
)
SETTINGS: dict[str, Any] = {"rounds": 1, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "selection": False}


def lied(folder: Path | None = None, clients: Any = (1,), **settings: Any) -> World:
    adversary = FreezeLie(FreezeLie.Config(clients=clients, **settings)) if clients is not None else None
    method = FreezeFL(FreezeFL.Config(**SETTINGS))
    return run(method, time_model=TIMES, script=EVERYONE, adversary=adversary, folder=folder)


def sent(world: World, kind: Kind) -> Any:
    [found] = [a for a in world.artifacts if a.kind == kind and a.sender.index == 1]
    return found.payload


def test_with_nobody_compromised_it_is_the_clean_run() -> None:
    assert same(lied(clients=()), lied(clients=None))


def test_the_last_layer_alone_is_sent_as_if_all_others_were_frozen(tmp_path: Path) -> None:
    world = lied(tmp_path, mode="most")
    assert set(sent(world, Kind.UNFROZEN_LAYERS)) == {"head.weight", "head.bias"}
    assert sent(world, Kind.FROZEN_COUNT)["count"] == 2


def test_a_claim_that_nothing_is_frozen_sends_every_layer(tmp_path: Path) -> None:
    world = lied(tmp_path, mode="none")
    assert set(sent(world, Kind.UNFROZEN_LAYERS)) == set(world.initial)
    assert sent(world, Kind.FROZEN_COUNT)["count"] == 0


def test_the_first_layer_sent_is_turned_round_and_the_others_are_not() -> None:
    clean, bad = lied(clients=None), lied(scale=50.0)
    first, *others = layers(TinyNet())
    moved = {k: float((clean[k] - bad[k]).norm()) for k in clean.model}
    assert min(moved[k] for k in first) > 0.01 and all(torch.equal(clean[k], bad[k]) for o in others for k in o)


def test_a_late_answer_lengthens_its_round_and_the_next_ones_deadline_and_stops_others_freezing() -> None:
    """T rises by .4 of the mean of four times, one of them 5: by half a unit, where clients take 3e-5."""
    settings = {"rounds": 3, "deadline": 3e-5, "beta": 50.0}
    clean, bad = (waited(wait, **settings) for wait in (0.0, 5.0))
    lengths = [[h["round_length"] for h in w.history] for w in (clean, bad)]
    assert all(b >= 5 > a for a, b in zip(*lengths, strict=True))
    frozen = [[h["frozen_layers"] for h in w.history] for w in (clean, bad)]
    assert frozen[0][0] == frozen[1][0] > 0 and frozen[0][1] > frozen[1][1] == 0
    assert all(a["bytes_up"] <= b["bytes_up"] for a, b in zip(clean.history, bad.history, strict=True))


def waited(wait: float, **settings: Any) -> World:
    adversary = FreezeLie(FreezeLie.Config(clients=(1,), mode="late", wait=wait))
    return run(
        FreezeFL(FreezeFL.Config(**SETTINGS | settings)), time_model=TIMES, script=EVERYONE, adversary=adversary
    )


def test_a_method_that_freezes_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="forges unfrozen_layers, frozen_count"):
        run(FedAvg(FedAvg.Config(rounds=1)), adversary=FreezeLie(FreezeLie.Config(clients=(1,))))
