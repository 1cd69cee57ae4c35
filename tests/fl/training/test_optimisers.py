"""Optimisers of local training are torch's own, step for step, alone and stacked."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.data.scale import normalise
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fednova import FedNova
from fedaudit.fl.model import State, initialise, state_of
from fedaudit.fl.protections.dp_sgd import DPSGD
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.worlds import TinyNet, data, parts, run, same

SETTINGS: dict[str, Any] = {"rounds": 1, "local_epochs": 2, "batch_size": 8, "lr": 0.01, "weight_decay": 0.05}
TORCH: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.05),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.05),
}


def by_torch(name: str, client: int) -> State:
    """A plain training loop over the client's data, in the order of its stream."""
    streams, d = Streams(5), data()
    net = initialise(TinyNet, streams)
    optimiser, index = TORCH[name](net.parameters()), parts(d)[client]
    x, y = normalise(torch.from_numpy(d.train.x[index]), d), torch.from_numpy(d.train.y[index])
    order = streams.torch("batches", 0, client)
    for _ in range(2):
        for batch in torch.split(torch.randperm(len(y), generator=order), 8):
            optimiser.zero_grad()
            cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return state_of(net)


@pytest.mark.parametrize("name", TORCH)
def test_a_client_takes_the_steps_of_torch(name: str) -> None:
    world = run(FedAvg(FedAvg.Config(optimiser=name, **SETTINGS)), script=[([1], [1])])  # type: ignore[arg-type]
    expected = by_torch(name, 1)
    assert all(torch.allclose(world[k], expected[k], rtol=0, atol=1e-6) for k in expected)


def test_they_differ_and_sgd_is_the_default() -> None:
    found = {n: run(FedAvg(FedAvg.Config(optimiser=n, **SETTINGS))) for n in TORCH}  # type: ignore[arg-type]
    assert same(found["sgd"], run(FedAvg(FedAvg.Config(**SETTINGS))))
    assert not same(found["adam"], found["adamw"]) and not same(found["sgd"], found["adam"])


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_stacked_clients_take_the_same_steps(name: Any) -> None:
    equal = [i[:7] for i in parts(data(n=80), sizes=(7, 7, 7, 0, 7))]
    config = FedAvg.Config(optimiser=name, **SETTINGS)
    alone, together = (run(FedAvg(config), index=equal, workers=w) for w in (0, "batched"))
    assert all(torch.allclose(alone[k], together[k], rtol=0, atol=1e-4) for k in alone.model)


def test_what_needs_the_steps_of_sgd_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"FedNova reads gradients off what SGD did, and method\.optimiser is adam"
    ):
        run(FedNova(FedNova.Config(optimiser="adam", **SETTINGS)))
    with pytest.raises(UserError, match=r"differential privacy is SGD, and method\.optimiser is adamw"):
        dp = DPSGD(DPSGD.Config(noise_multiplier=1.0))
        run(FedAvg(FedAvg.Config(optimiser="adamw", **SETTINGS)), protections=[dp])
