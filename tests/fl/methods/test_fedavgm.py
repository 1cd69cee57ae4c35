"""FedAvgM is FedAvg without momentum, and torch's SGD with momentum on the mean change otherwise."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.fed_opt import FedAvgM
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, run, same


def fedavgm(**settings: Any) -> FedAvgM:
    return FedAvgM(FedAvgM.Config(**(SETTINGS | settings)))


def test_no_momentum_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(fedavgm(server_momentum=0.0), **WORLD), run(fedavg, **WORLD))


def test_momentum_is_not_fedavg_after_the_first_round() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert not same(run(fedavgm(), **WORLD), run(fedavg, **WORLD))
    one = {"rounds": 1}
    assert same(run(fedavgm(**one)), run(FedAvg(FedAvg.Config(**(SETTINGS | one)))))


def test_the_server_is_torch_sgd_with_momentum() -> None:
    server = fedavgm(server_lr=0.7, server_momentum=0.9)
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=0.7, momentum=0.9)
    moments = server.moments({"w": torch.zeros(2, dtype=torch.float64)})
    at = w.detach().clone()
    for delta in ([0.5, -0.25], [-1.0, 0.0], [0.1, 3.0]):
        change = torch.tensor(delta, dtype=torch.float64)
        w.grad = -change
        sgd.step()
        step = server.direction({"w": change}, moments)
        at, moments = at + 0.7 * step.direction["w"], step.moments
        torch.testing.assert_close(at, w.detach(), rtol=0, atol=1e-12)


def test_a_server_rate_of_zero_never_moves() -> None:
    world = run(fedavgm(server_lr=0.0))
    for name, value in world.model.items():
        torch.testing.assert_close(value, world.initial[name], rtol=0, atol=1e-7)


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(fedavgm, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(fedavgm(), script=EVERYONE), run(fedavgm(), script=EVERYONE, workers=2))


def test_a_momentum_of_one_is_refused() -> None:
    with pytest.raises(UserError, match=r"server_momentum must be < 1, got 1"):
        fedavgm(server_momentum=1.0)
