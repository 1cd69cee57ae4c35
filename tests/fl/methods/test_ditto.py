"""Ditto's global model is FedAvg's; its own models are local training at lambda 0 and follow w otherwise."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.ditto import Ditto, _OwnTraining
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, data, parts, run, same


def ditto(**settings: Any) -> Ditto:
    return Ditto(Ditto.Config(**(SETTINGS | settings)))


def own_models(method: Ditto, folder: Path, **world: Any) -> dict[str, dict[str, torch.Tensor]]:
    """Each client's v_k after a run, by client number as text."""
    run(method, folder=folder, **world)
    saved = tree.load(folder / "checkpoint" / "state.safetensors")
    return {k: memory["own"] for k, memory in saved["memory"].items()}


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    return float(sum((a[k] - b[k]).square().sum() for k in a)) ** 0.5


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_the_global_model_is_fedavg_to_the_last_bit(strength: float) -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(ditto(strength=strength), **WORLD), run(fedavg, **WORLD))


def test_without_strength_a_client_trains_alone(tmp_path: Path) -> None:
    """Client 1 of a federation has the model of client 1 in a federation where others hold other data."""
    d, index = data(), parts(data())
    alone = [index[4], index[1], index[0], index[3], index[2]]
    a = own_models(ditto(strength=0.0), tmp_path / "a", d=d, index=index, script=EVERYONE)
    b = own_models(ditto(strength=0.0), tmp_path / "b", d=d, index=alone, script=EVERYONE)
    assert same(a["1"], b["1"])
    c = own_models(ditto(strength=1.0), tmp_path / "c", d=d, index=alone, script=EVERYONE)
    assert not same(a["1"], c["1"])


def test_more_strength_brings_the_own_model_nearer_to_the_global_one(tmp_path: Path) -> None:
    gaps = []
    for i, strength in enumerate((0.0, 1.0, 5.0)):
        folder = tmp_path / str(i)
        method = ditto(strength=strength, rounds=1)
        own = own_models(method, folder, script=EVERYONE)
        start = run(method, script=EVERYONE).initial
        gaps.append(distance(own["4"], start))
    assert gaps[0] > gaps[1] > gaps[2]


def test_the_pull_is_strength_times_the_gap() -> None:
    own = _OwnTraining(ditto(), 0.5)
    w, v = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([4.0, -3.0])}
    corrected = own.correct({"w": torch.tensor([10.0, 10.0])}, v, v, {"global": w})
    assert corrected["w"].tolist() == [11.5, 9.5]


def test_own_models_are_scored_and_never_sent(tmp_path: Path) -> None:
    world = run(ditto(), folder=tmp_path, script=EVERYONE)
    assert {"client_accuracy", "personal_accuracy"} <= world.history[-1].keys()
    plain = run(FedAvg(FedAvg.Config(**SETTINGS)), folder=tmp_path / "fedavg", script=EVERYONE)
    assert [a.id for a in world.artifacts] == [a.id for a in plain.artifacts]
    assert [a.size_bytes for a in world.artifacts] == [a.size_bytes for a in plain.artifacts]


def test_a_lost_reply_does_not_advance_the_own_model(tmp_path: Path) -> None:
    assert own_models(ditto(), tmp_path, reply_loss=1.0) == {}


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(ditto, tmp_path, **WORLD)
    straight = own_models(ditto(), tmp_path / "straight", **WORLD)
    continued = tree.load(tmp_path / "checkpoint" / "state.safetensors")["memory"]
    assert all(same(straight[k], continued[k]["own"]) for k in straight)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(ditto(), script=EVERYONE), run(ditto(), script=EVERYONE, workers=2))


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(UserError, match="strength must be >= 0, got -1"):
        ditto(strength=-1.0)
