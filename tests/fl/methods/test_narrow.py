"""FjORD and HeteroFL: widths of 1 are FedAvg; narrow clients send less, and only what they hold is averaged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.families.widths import masks
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fjord import FjORD
from fedaudit.fl.methods.heterofl import HeteroFL, scale_outputs
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import EVERYONE, TinyNet, data, parts, run, same

COMMON: dict[str, Any] = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9}
WORKLOAD = Counted().workload(TinyNet(), (1, 6, 6))
TIMES = TimeModel(capability=np.array([0.5, 1.0, 3.0, 1.0, 2.0]), workload=WORKLOAD)


def test_a_width_of_one_is_fedavg_bit_for_bit() -> None:
    theirs = run(FedAvg(FedAvg.Config(**COMMON)), time_model=TIMES)
    assert same(theirs, run(FjORD(FjORD.Config(widths=(1.0,), **COMMON)), time_model=TIMES))
    assert same(theirs, run(HeteroFL(HeteroFL.Config(widths=(1.0,), mask="none", **COMMON)), time_model=TIMES))
    assert not same(theirs, run(FjORD(FjORD.Config(**COMMON)), time_model=TIMES))
    assert not same(theirs, run(HeteroFL(HeteroFL.Config(widths=(1.0,), **COMMON)), time_model=TIMES))


class AllWide(FjORD):
    """Four widths, and everybody has the last."""

    def start(self, federation: Any) -> Any:
        return super().start(federation) | {"tiers": [3] * len(federation.parts)}


def test_clients_that_are_all_wide_are_fedavg_too() -> None:
    theirs = run(FedAvg(FedAvg.Config(**COMMON)), time_model=TIMES)
    assert same(theirs, run(AllWide(FjORD.Config(sampling=False, **COMMON)), time_model=TIMES))


def test_a_client_is_sent_and_sends_the_part_of_its_width(tmp_path: Path) -> None:
    method = FjORD(FjORD.Config(**(COMMON | {"rounds": 1})))
    world = run(method, time_model=TIMES, script=EVERYONE, folder=tmp_path)
    widths = {a.sender.index: float(a.payload["width"]) for a in world.artifacts if a.kind == Kind.WIDTH}
    assert widths == {None: pytest.approx(widths[None]), 0: 0.25, 1: 0.25, 4: 0.75, 2: 1.0}
    total = 0
    for a in world.artifacts:
        if a.kind == Kind.LOCAL_MODEL:
            own = masks(TinyNet(), widths[a.sender.index])
            assert all(not v[~own[k].numpy()].any() for k, v in a.payload.items())
            total += 4 * sum(int(m.sum()) for m in own.values()) + 8 + 8 + 8  # width, how many numbers, examples
    assert world.history[0]["bytes_up"] == total


def test_numbers_that_nobody_held_stay_and_the_others_are_means_of_holders() -> None:
    narrow = FjORD.Config(widths=(0.5, 1.0), sampling=False, **(COMMON | {"rounds": 1}))
    alone = TimeModel(capability=np.array([1.0, 1.0, 1.0, 1.0, 9.0]), workload=WORKLOAD)
    world = run(FjORD(narrow), time_model=alone, script=[([0, 1], [0, 1])])
    own = masks(TinyNet(), 0.5)
    for k, v in world.model.items():
        assert torch.equal(v[~own[k]], world.initial[k][~own[k]])
    assert not torch.equal(world["head.bias"], world.initial["head.bias"])


def test_distillation_changes_what_is_learnt() -> None:
    plain, taught = (run(FjORD(FjORD.Config(distillation=d, **COMMON)), time_model=TIMES) for d in (0.0, 1.0))
    assert not same(plain, taught)


def test_rows_of_classes_that_a_client_lacks_are_not_averaged_from_it() -> None:
    """Client 0 has one class: alone in a round, it leaves the rows of the others as they were."""
    d = data()
    index = parts(d)
    held = set(np.unique(d.train.y[index[0]]).tolist())
    settings = COMMON | {"rounds": 1, "weight_decay": 0.1}
    world = run(HeteroFL(HeteroFL.Config(**settings)), time_model=TIMES, script=[([0], [0])], d=d, index=index)
    for c in range(4):
        kept = torch.equal(world["head.weight"][c], world.initial["head.weight"][c])
        assert kept == (c not in held) or len(held) == 1  # of one class the loss under the mask is zero
    other = run(HeteroFL(HeteroFL.Config(**settings)), time_model=TIMES, script=[([1], [1])], d=d, index=index)
    held = set(np.unique(d.train.y[index[1]]).tolist())
    for c in range(4):
        kept = torch.equal(other["head.bias"][c], other.initial["head.bias"][c])
        assert kept == (c not in held)


def test_the_scaler_divides_hidden_outputs_and_leaves_no_trace() -> None:
    net, x = TinyNet(), torch.rand(2, 1, 6, 6)
    plain = net.conv(x)
    with scale_outputs(net, 0.5):
        assert torch.equal(net.conv(x), plain / 0.5) and torch.equal(
            net.head(torch.ones(8)), net.head(torch.ones(8))
        )
        inside = net(x)
    assert torch.equal(net.conv(x), plain) and not torch.allclose(inside, net(x))


def test_widths_that_do_not_ascend_to_one_are_refused() -> None:
    with pytest.raises(UserError, match=r"method.widths must ascend to 1, got \[0.5, 0.25\]"):
        FjORD.Config(widths=(0.5, 0.25))
