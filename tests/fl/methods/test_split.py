"""FedPer, FedRep and LG-FedAvg: FedAvg where nothing is private, and private parts that never travel."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.families.split import SplitMethod
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedper import FedPer
from fedaudit.fl.methods.fedrep import FedRep
from fedaudit.fl.methods.lg_fedavg import LGFedAvg
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, run, same

HEAD = {"head.weight", "head.bias"}
BODY = {"conv.weight", "conv.bias", "fc.weight", "fc.bias"}


def make(cls: type[SplitMethod], **settings: Any) -> SplitMethod:
    return cls(cls.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def memories(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return found


ALL = pytest.mark.parametrize(("cls", "private"), [(FedPer, HEAD), (FedRep, HEAD), (LGFedAvg, BODY)])


@ALL
def test_with_nothing_private_it_is_fedavg_to_the_last_bit(cls: type[SplitMethod], private: set[str]) -> None:
    assert same(run(make(cls, private=()), **WORLD), run(fedavg(), **WORLD))


@ALL
def test_the_private_part_is_in_no_message_and_the_rest_is_not_fedavg(
    cls: type[SplitMethod], private: set[str], tmp_path: Path
) -> None:
    world = run(make(cls), folder=tmp_path, **WORLD)
    models = [
        a
        for a in world.artifacts
        if a.kind in (Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL) and a.channel != Channel.RELEASE
    ]
    assert len(models) >= 6
    assert all(not private & a.payload.keys() for a in models)
    avg = run(fedavg(), **WORLD)
    for name, value in world.model.items():
        assert torch.equal(value, world.initial[name]) == (name in private)
        assert not torch.equal(value, avg[name])


@ALL
def test_clients_keep_different_private_parts_and_are_scored_with_them(
    cls: type[SplitMethod], private: set[str], tmp_path: Path
) -> None:
    world = run(make(cls), folder=tmp_path, script=EVERYONE)
    kept = memories(tmp_path)
    assert kept["0"]["private"].keys() == private
    assert not same(kept["0"]["private"], kept["4"]["private"])
    assert world.history[-1]["personal_accuracy"] > world.history[-1]["accuracy"]


@ALL
def test_a_lost_reply_does_not_advance_the_private_part(
    cls: type[SplitMethod], private: set[str], tmp_path: Path
) -> None:
    run(make(cls), folder=tmp_path, reply_loss=1.0)
    assert memories(tmp_path) == {}


@pytest.mark.nightly
@ALL
def test_a_run_that_was_stopped_continues_to_the_same_bits(
    cls: type[SplitMethod], private: set[str], tmp_path: Path
) -> None:
    assert continues(lambda: make(cls), tmp_path, **WORLD)
    run(make(cls), folder=tmp_path / "straight", **WORLD)
    continued, straight = memories(tmp_path), memories(tmp_path / "straight")
    assert all(same(continued[k]["private"], straight[k]["private"]) for k in straight)


def test_fedper_trains_all_layers_together() -> None:
    """One client, one round: its base is FedAvg's, because the initial head is everybody's."""
    world = {"script": [([1], [1])]}
    per, avg = run(make(FedPer, rounds=1), **world), run(fedavg(rounds=1), **world)  # type: ignore[arg-type]
    assert all(torch.equal(per[k], avg[k]) for k in BODY)


def test_a_client_alone_goes_on_from_its_own_parts(tmp_path: Path) -> None:
    """Then keeping a part and averaging the other are the same: FedAvg, after several rounds."""
    script = [([4], [4])]
    avg = run(fedavg(), script=script)
    for i, cls in enumerate((FedPer, LGFedAvg)):
        world = run(make(cls), folder=tmp_path / str(i), script=script)
        whole = world.model | memories(tmp_path / str(i))["4"]["private"]
        assert same(whole, avg)


def test_fedrep_fits_the_head_before_the_base(tmp_path: Path) -> None:
    """Without head epochs the head stays; without base epochs the base does."""
    run(make(FedRep, head_epochs=0), folder=tmp_path / "a", script=EVERYONE)
    world = run(make(FedRep, local_epochs=0), folder=tmp_path / "b", script=EVERYONE)
    heads = memories(tmp_path / "a")
    assert all(torch.equal(m["private"][k], world.initial[k]) for m in heads.values() for k in HEAD)
    assert same(world.model, world.initial)
    heads = memories(tmp_path / "b")
    assert not any(torch.equal(heads["4"]["private"][k], world.initial[k]) for k in HEAD)


def test_a_prefix_names_private_layers_too(tmp_path: Path) -> None:
    run(make(FedPer, private=("fc", "head")), folder=tmp_path)
    assert memories(tmp_path)["0"]["private"].keys() == HEAD | {"fc.weight", "fc.bias"}


def test_a_warm_start_is_fedavg_until_the_extractors_part(tmp_path: Path) -> None:
    warm = run(make(LGFedAvg, warm_start=3), **WORLD)
    assert same(warm, run(fedavg(), **WORLD))
    parted = run(make(LGFedAvg, warm_start=1), folder=tmp_path, script=EVERYONE)
    first = run(fedavg(rounds=1), script=EVERYONE)
    assert all(torch.equal(parted[k], first[k]) for k in BODY)
    down = [a for a in parted.artifacts if a.channel == Channel.DOWNLINK]
    whole = [(a.round, a.seen_by) for a in down if a.payload.keys() >= BODY]
    # Everybody in round 0; each client, also the one without data, by itself in round 1
    assert whole[:6] == [(0, ("client",)), *((1, (f"client/{k}",)) for k in range(5))]
    assert {(a.round, a.seen_by) for a in down if not a.payload.keys() & BODY} == {
        (1, ("client",)),
        (2, ("client",)),
    }


def test_a_warm_start_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(lambda: make(LGFedAvg, warm_start=1), tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(make(FedRep), script=EVERYONE), run(make(FedRep), script=EVERYONE, workers=2))


@pytest.mark.parametrize(
    ("make_method", "complaint"),
    [
        (lambda: run(make(FedPer, private=("classifier",))), "no parameter begins with 'classifier'"),
        (lambda: run(make(FedPer, private=("head", "body"))), "leaves no parameter to share"),
        (lambda: make(FedRep, head_epochs=-1), "head_epochs must be >= 0, got -1"),
        (lambda: make(LGFedAvg, warm_start=-1), "warm_start must be >= 0, got -1"),
    ],
)
def test_impossible_settings_are_refused(make_method: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make_method()
