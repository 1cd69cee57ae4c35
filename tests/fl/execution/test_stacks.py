"""Clients that train side by side are each of them: one call of the loss a step where torch can stack it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.execution.batched import SMALL, WIDTH, choose_width, train_together
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.personal_layers import FedBABU
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.local import Constants, Handle, Trained
from tests.fl.worlds import TinyNet, data, parts

SETTINGS: dict[str, Any] = {"rounds": 1, "local_epochs": 2, "batch_size": 10, "lr": 0.1}
WHO = (0, 1, 2, 4)


class Counting(FedAvg):
    """Counts how often its loss is taken."""

    calls = 0

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        self.calls += 1
        return super().loss(net, x, y, const)


class Waiting(Counting):
    """Looks at a number in the middle of a step, which nobody can of a stack."""

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        found = super().loss(net, x, y, const)
        return found if float(found.detach()) > 1 else 2 * found


class Keeping(Counting):
    """Sends the last image that its loss was given."""

    kept = torch.zeros(0)

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        self.kept = x[-1]
        return super().loss(net, x, y, const)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        model = reply.message[Kind.LOCAL_MODEL]
        stolen = torch.from_numpy(np.array(self.kept)).flatten()[: model["head.bias"].numel()]
        reply.message[Kind.LOCAL_MODEL] = {**model, "head.bias": stolen}
        return reply


def site_of(method: FedAvg, make: Any = TinyNet) -> Site:
    d = data()
    return build_site(method, Holdings(d, parts(d), Streams(5), np.zeros(0, np.int64)), make, "cpu")


def models(site: Site, starts: dict[int, State], together: bool) -> list[State]:
    clients = []
    for k in WHO:
        site.begin(0, {Kind.GLOBAL_MODEL: starts[k]})
        clients.append(site.client((k, {}, {})))
    replies = train_together(site, clients) if together else [site.method.train(c) for c in clients]
    return [r.message[Kind.LOCAL_MODEL] for r in replies]


def equal(one: list[State], other: list[State], tolerance: float) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.allclose(v, b[k], atol=tolerance, rtol=0) for a, b in pairs for k, v in a.items())


def begin(seed: int) -> State:
    return state_of(initialise(TinyNet, Streams(seed)))


def test_a_stack_takes_the_loss_once_a_step_for_all() -> None:
    starts = dict.fromkeys(WHO, begin(1))
    alone, stacked = Counting(Counting.Config(**SETTINGS)), Counting(Counting.Config(**SETTINGS))
    one, other = models(site_of(alone), starts, False), models(site_of(stacked), starts, True)
    assert equal(one, other, 1e-5)
    assert not equal(one[:1], one[1:2], 1e-3)
    assert stacked.calls < alone.calls == 2 * (1 + 2 + 2 + 3)


def test_clients_of_a_stack_may_have_begun_with_different_models_also_of_weights_that_nobody_trains() -> None:
    starts = {k: begin(k) for k in WHO}
    method = FedBABU(FedBABU.Config(**SETTINGS))
    one, other = (models(site_of(method), starts, together) for together in (False, True))
    assert equal(one, other, 1e-5)
    shared = dict.fromkeys(WHO, starts[0])
    assert not equal(models(site_of(method), shared, True)[1:], one[1:], 1e-2)


def test_code_that_torch_cannot_stack_is_trained_one_by_one() -> None:
    for kind in (Waiting, Keeping):
        starts = dict.fromkeys(WHO, begin(1))
        method = kind(kind.Config(**SETTINGS))
        site = site_of(method)
        assert equal(models(site, starts, True), models(site, starts, False), 0.0)


class Wide(Net):
    """One layer of a good many weights."""

    def __init__(self, shape: tuple[int, ...] = (1, 6, 6), classes: int = 4) -> None:
        super().__init__(shape, classes)
        self.fc = nn.Linear(36, 3000)
        self.head = nn.Linear(3000, classes)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x.flatten(1)))


def test_a_processor_stacks_small_networks_alone() -> None:
    method = FedAvg(FedAvg.Config(**SETTINGS))
    assert sum(p.numel() for p in Wide().parameters()) > SMALL
    assert choose_width(site_of(method, Wide)) == 1
    assert choose_width(site_of(method)) == WIDTH
