"""Personal layers: FedAvg where all is shared, private parts that never travel, a head that stays as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.personal_layers import FedBABU, FedPer, FedRep, LGFedAvg
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, close, data, run, same

HEAD = {"head.weight", "head.bias"}
BODY = {"conv.weight", "conv.bias", "fc.weight", "fc.bias"}


def make(cls: type[FedPer], **settings: Any) -> FedPer:
    return cls(cls.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def memories(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return found


ALL = pytest.mark.parametrize(("cls", "private"), [(FedPer, HEAD), (FedRep, HEAD), (LGFedAvg, BODY)])


@ALL
def test_with_nothing_private_it_is_fedavg_to_the_last_bit(cls: type[FedPer], private: set[str]) -> None:
    assert same(run(make(cls, private=()), **WORLD), run(fedavg(), **WORLD))


@ALL
def test_the_private_part_is_in_no_message_and_the_rest_is_not_fedavg(
    cls: type[FedPer], private: set[str], tmp_path: Path
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
    cls: type[FedPer], private: set[str], tmp_path: Path
) -> None:
    world = run(make(cls), folder=tmp_path, script=EVERYONE)
    kept = memories(tmp_path)
    assert kept["0"]["private"].keys() == private
    assert not same(kept["0"]["private"], kept["4"]["private"])
    assert world.history[-1]["personal_accuracy"] > world.history[-1]["accuracy"]


@ALL
def test_a_lost_reply_does_not_advance_the_private_part(
    cls: type[FedPer], private: set[str], tmp_path: Path
) -> None:
    run(make(cls), folder=tmp_path, reply_loss=1.0)
    assert memories(tmp_path) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("cls", [FedPer, FedRep, LGFedAvg, FedBABU])
def test_a_run_that_was_stopped_continues_to_the_same_bits(cls: type[FedPer], tmp_path: Path) -> None:
    assert continues(lambda: make(cls, head_init="orthogonal"), tmp_path, **WORLD)
    run(make(cls, head_init="orthogonal"), folder=tmp_path / "straight", **WORLD)
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
@pytest.mark.parametrize("cls", [FedRep, FedBABU])
def test_two_processes_agree_with_one(cls: type[FedPer]) -> None:
    assert same(run(make(cls), script=EVERYONE), run(make(cls), script=EVERYONE, workers=2))


# The head stays as it was (FedBABU) ---------------------------------------------------------


class HeadStill(FedAvg):
    """FedAvg whose head gets neither gradient nor decay."""

    def correct(self, grads, params, start, const):  # type: ignore[no-untyped-def]
        return {k: -0.01 * params[k] if k in self.head else g for k, g in grads.items()}


def test_the_head_is_the_initial_one_after_any_number_of_rounds() -> None:
    world = run(make(FedBABU))
    assert torch.equal(world["head.weight"], world.initial["head.weight"])
    assert torch.equal(world["head.bias"], world.initial["head.bias"])
    assert not torch.equal(world["fc.weight"], world.initial["fc.weight"])


def test_the_body_trains_as_if_the_heads_gradient_were_zero() -> None:
    assert close(run(make(FedBABU), **WORLD), run(HeadStill(fedavg().config), **WORLD))


def test_it_is_not_fedavg() -> None:
    assert not close(run(make(FedBABU)), run(fedavg()), tolerance=1e-4)


def test_no_head_goes_up(tmp_path: Path) -> None:
    world = run(make(FedBABU), folder=tmp_path)
    up = [a for a in world.artifacts if a.channel is Channel.UPLINK and a.kind is Kind.LOCAL_MODEL]
    assert up and all(not any(k.startswith("head") for k in a.payload) for a in up)


def test_orthogonal_rows_are_orthonormal_and_the_same_for_everybody() -> None:
    world = run(make(FedBABU, head_init="orthogonal"))
    rows = world["head.weight"]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows)), atol=1e-5, rtol=0)
    assert same(world, run(make(FedBABU, head_init="orthogonal")))


def test_the_released_model_has_its_head(tmp_path: Path) -> None:
    world = run(make(FedBABU), folder=tmp_path)
    (released,) = [a for a in world.artifacts if a.channel is Channel.RELEASE]
    assert released.payload.keys() == world.initial.keys()


# Phases of one's own choosing ----------------------------------------------------------------


def test_without_phases_all_is_trained_together() -> None:
    """So FedRep is FedPer, and FedBABU, whose head is not private, is FedAvg."""
    assert same(run(make(FedRep, phases=()), **WORLD), run(make(FedPer), **WORLD))
    assert same(run(make(FedBABU, phases=()), **WORLD), run(fedavg(), **WORLD))


def test_fedbabu_is_fedper_that_keeps_nothing_and_trains_the_body() -> None:
    assert same(run(make(FedPer, private=(), phases=("body",)), **WORLD), run(make(FedBABU), **WORLD))


def test_the_order_of_phases_matters() -> None:
    before, after = (make(FedRep, phases=p) for p in (("private", "shared"), ("shared", "private")))
    assert not close(run(before, **WORLD), run(after, **WORLD))


def test_what_no_phase_trains_is_not_sent_and_stays_as_it_was(tmp_path: Path) -> None:
    world = run(make(FedRep, phases=("fc", "private"), head_epochs=1), folder=tmp_path, script=EVERYONE)
    up = [a for a in world.artifacts if a.channel is Channel.UPLINK and a.kind is Kind.LOCAL_MODEL]
    assert len(up) == 12 and all(a.payload.keys() == {"fc.weight", "fc.bias"} for a in up)
    assert all(torch.equal(world[k], world.initial[k]) for k in ("conv.weight", "conv.bias"))
    assert not torch.equal(world["fc.weight"], world.initial["fc.weight"])
    assert not torch.equal(memories(tmp_path)["4"]["private"]["head.weight"], world.initial["head.weight"])


def test_phases_by_hand(tmp_path: Path) -> None:
    """One client, full batches, so that their order is nothing: first the last layer, then the one before."""
    d = data()
    settings = {"rounds": 1, "batch_size": 80, "local_epochs": 3, "head_epochs": 2, "phases": ("head", "fc")}
    world = run(make(FedRep, **settings), d=d, index=[np.arange(80)], script=[([0], [0])], folder=tmp_path)
    net = TinyNet()
    net.load_state_dict(world.initial)
    x, y = torch.from_numpy((d.train.x - 0.4) / 0.25), torch.from_numpy(d.train.y)
    for layer, epochs in ((net.head, 2), (net.fc, 3)):
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
        for _ in range(epochs):
            net.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
    ours = world.model | memories(tmp_path)["0"]["private"]
    assert close(ours, dict(net.state_dict()))


def test_own_parts_are_tuned_with_the_shared_ones() -> None:
    """A client alone has what FedAvg has, in two places; tuned, both are scored alike."""
    alone: dict[str, Any] = {"index": [np.arange(80)], "script": [([0], [0])]}
    own, avg = (
        run(m, **alone).history[-1] for m in (make(FedPer, fine_tune_epochs=1), fedavg(fine_tune_epochs=1))
    )
    assert own["client_accuracy"] == avg["client_accuracy"] and own["accuracy"] < avg["accuracy"]


@pytest.mark.parametrize(
    ("make_method", "complaint"),
    [
        (lambda: run(make(FedPer, private=("classifier",))), "no parameter begins with 'classifier'"),
        (lambda: run(make(FedPer, private=("head", "body"))), "leaves no parameter to share"),
        (lambda: run(make(FedRep, phases=("last",))), "method.phases: no parameter begins with 'last'"),
        (lambda: run(make(FedPer, phases=("private",))), "trains no parameter that is shared"),
        (lambda: make(FedPer, phases=("head", "body")), "phases must have at most 1 entry"),
        (lambda: make(FedRep, head_epochs=-1), "head_epochs must be >= 0, got -1"),
        (lambda: make(LGFedAvg, warm_start=-1), "warm_start must be >= 0, got -1"),
    ],
)
def test_impossible_settings_are_refused(make_method: Callable[[], object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make_method()
