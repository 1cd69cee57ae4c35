"""DSGD: one batch a round, momentum that stays with the client, and a study's table as its user runs it."""

from dataclasses import replace

import pytest
import torch

from fedaudit.fl.clients.client import Client
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.dsgd import DSGD
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from tests.audit.tiny import Linear

W = "head.weight"


def client(memory: Tree | None = None, round: int = 0) -> Client:
    net = Linear((1, 2, 2), 2, Linear.Config(width=4))
    g = torch.Generator().manual_seed(3)
    start = {k: torch.randn(v.shape, generator=g) for k, v in net.state_dict().items()}
    return Client(
        index=0,
        round=round,
        x=torch.randn(10, 1, 2, 2, generator=g),
        y=torch.arange(10) % 2,
        classes=2,
        message={Kind.GLOBAL_MODEL: start},
        memory=memory or {},
        net=net,
        streams=Streams(5),
    )


def sent(method: DSGD | FedAvg, of: Client) -> torch.Tensor:
    change: torch.Tensor = method.train(of).message[Kind.LOCAL_MODEL][W] - of.start[W]
    return change


def test_a_batch_of_everything_is_fedavgs_single_step() -> None:
    settings = {"batch_size": 10, "lr": 0.1, "local_epochs": 1}
    plain = FedAvg(FedAvg.Config(**settings))
    assert torch.allclose(sent(DSGD(DSGD.Config(**settings)), client()), sent(plain, client()), atol=1e-6)


def test_a_round_uses_one_batch_which_the_next_round_draws_anew() -> None:
    method = DSGD(DSGD.Config(batch_size=4, lr=0.1))
    first, again, later = sent(method, client()), sent(method, client()), sent(method, client(round=1))
    assert torch.equal(first, again) and not torch.equal(first, later)
    held = client()
    drawn = torch.randperm(10, generator=held.generator("batch"))[:4]
    alone = sent(method, replace(held, x=held.x[drawn], y=held.y[drawn]))
    assert torch.allclose(first, alone, atol=1e-6)


def test_momentum_is_the_weighted_mean_of_the_step_and_what_the_client_remembers() -> None:
    plain, beta = DSGD(DSGD.Config(batch_size=10, lr=0.1)), 0.75
    method = DSGD(DSGD.Config(batch_size=10, lr=0.1, worker_momentum=beta))
    step = sent(plain, client())
    first = method.train(client())
    assert first.memory is not None
    assert torch.allclose(first.memory["step"][W], 0.25 * step, atol=1e-6)
    second = method.train(client(first.memory))
    change = second.message[Kind.LOCAL_MODEL][W] - client().start[W]
    assert torch.allclose(change, 0.25 * step + 0.75 * 0.25 * step, atol=1e-6)
    assert method.train(client()).memory != {} and plain.train(client()).memory is None


@pytest.mark.parametrize("beta", [-0.1, 1.0])
def test_momentum_out_of_range_is_refused(beta: float) -> None:
    from fedaudit.fl.runtime.errors import UserError
    from fedaudit.fl.runtime.plugin import configure

    with pytest.raises(UserError, match="worker_momentum"):
        configure(DSGD, {"worker_momentum": beta}, "method")
