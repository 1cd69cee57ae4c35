"""Federations of every task: who trains them, and who says in one sentence why not."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.attacks.poisoning.label_flip import LabelFlip
from fedaudit.attacks.poisoning.reversal import SignFlip
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Method, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net
from fedaudit.fl.protections.dp_sgd import DPSGD
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task, load_task
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, TinyNet, close, parts, run

TASKS = ("classify", "several", "regression", "survival", "segment")
METHODS = plugin.names("fedaudit.fl.methods")


class Places(Net):
    """A logit for each class and place: one convolution and a head of 1 x 1."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__((), classes)
        self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, classes, 1)

    def features(self, x: Tensor) -> Tensor:
        return self.conv(x).relu()


def data(name: str, n: int = 100) -> Data:
    """Images whose upper half is as bright as a number says, and labels of each task made of it."""
    rng = np.random.default_rng(3)
    x, z = rng.uniform(0, 0.4, (n + 40, 1, 6, 6)).astype(np.float32), rng.uniform(-2, 2, n + 40)
    x[:, 0, :3] += (z[:, None, None] + 2).astype(np.float32) * 0.15
    labels: dict[str, Any] = {
        "classify": np.digitize(z, (-1, 0, 1)).astype(np.int64),
        "several": np.stack([z > 0, z > 1], 1).astype(np.int64),
        "regression": z.astype(np.float32),
        "survival": np.stack([np.exp(-z) * rng.exponential(1, n + 40), rng.random(n + 40) < 0.7], 1),
        "segment": (x[:, 0] > 0.35).astype(np.int64),
    }
    y = labels[name].astype(np.float32) if name == "survival" else labels[name]
    task = load_task(name)().learn_scale(y[n:])
    classes = {"classify": tuple("abcd"), "segment": tuple("ab"), "several": ("up", "corner")}.get(name, ())
    held = Arrays(x=x[:n], y=y[:n]), Arrays(x=x[n:], y=y[n:])
    return Data(train=held[0], test=held[1], classes=classes, task=task, mean=(0.5,), std=(0.3,))


def build(task: Task, width: int) -> Net:
    net = Places(width) if task.by_place else TinyNet(classes=width)
    net.task = task
    return net


def world(name: str, of: RoundMethod, **more: Any) -> Any:
    d = data(name)
    index = parts(d, skew=False)
    return run(of, d=d, index=index, make=partial(build, d.task, d.width), script=EVERYONE, **more)


@pytest.mark.parametrize("name", TASKS)
def test_fedavg_learns_every_task_and_scores_it(name: str) -> None:
    found = world(name, method("fedavg", rounds=12, lr=1.0 if name == "segment" else 0.1))
    first, last = found.history[0], found.history[-1]
    assert last["test_loss"] < first["test_loss"] and last["accuracy"] > first["accuracy"]
    assert 0 <= last["accuracy"] <= 1
    groups = {"classify": 4, "regression": 10, "survival": 2}.get(name, 0)
    assert len(last.get("class_accuracy", ())) == groups


@pytest.mark.parametrize("name", TASKS)
def test_clients_side_by_side_train_as_one_by_one(name: str) -> None:
    alone, stacked = (world(name, method("fedavg", rounds=2), workers=w) for w in (0, "batched"))
    assert close(alone.model, stacked.model)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_a_number_or_says_that_it_is_made_for_classes(name: str) -> None:
    of: Any = method(name)
    if of.card.needs == "classes":
        with pytest.raises(UserError, match="is made for classes, and the task of the data is regression"):
            world("regression", of)
    elif of.card.trained is not Kind.ADAPTER:
        assert world("regression", of).history


def test_methods_of_classes_are_those_whose_messages_or_losses_are_of_classes() -> None:
    cards = {n: plugin.load("fedaudit.fl.methods", n, Method).card for n in METHODS}
    by_class = {
        n for n, c in cards.items() if any("[C" in s or "classes" in s for k in c.uplink for s in k.arrays)
    }
    assert {n for n in by_class if cards[n].needs != "classes"} == set()
    assert {cards[n].needs for n in ("fedavg", "fedprox", "scaffold", "moon", "ditto", "fednova")} == {""}
    assert {cards[n].needs for n in ("fedrs", "fd", "fedaws", "fedproto", "fedmd", "fedgkt")} == {"classes"}


@pytest.mark.parametrize("name", ["regression", "several", "segment"])
def test_dp_sgd_trains_what_is_a_sum_over_examples(name: str) -> None:
    private = DPSGD(DPSGD.Config(clip_norm=1.0, noise_multiplier=0.1, sample_rate=0.5, steps=2))
    assert world(name, method("fedavg", rounds=2), protections=[private]).history


def test_dp_sgd_refuses_survival_whose_loss_is_no_sum_over_examples() -> None:
    private = DPSGD(DPSGD.Config(clip_norm=1.0, noise_multiplier=0.1, sample_rate=0.5, steps=2))
    with pytest.raises(UserError, match="the loss of survival is no sum over examples"):
        world("survival", method("fedavg", rounds=2), protections=[private])


def test_the_loss_of_a_regression_is_that_of_its_numbers_by_hand() -> None:
    d = data("regression")
    net = build(d.task, d.width)
    x, y = torch.from_numpy(d.train.x[:5]), torch.from_numpy(d.train.y[:5])
    assert net.loss(x, y).item() == pytest.approx(((net(x)[:, 0] - y) ** 2).mean().item(), abs=1e-6)


def test_an_adversary_that_acts_on_classes_refuses_a_number() -> None:
    flip = LabelFlip(LabelFlip.Config(clients=1))
    with pytest.raises(UserError, match="Label flip acts on classes, and the task of the data is regression"):
        world("regression", method("fedavg"), adversary=flip)


def test_an_adversary_that_changes_updates_takes_every_task() -> None:
    turned = SignFlip(SignFlip.Config(clients=1))
    assert world("several", method("fedavg", rounds=2), adversary=turned).history


class Around(Net):
    """A network of a method's own that holds the federation's."""

    def __init__(self, net: Net) -> None:
        super().__init__((), 0)
        self.shared = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shared(x)
        return out


class Wrapping(FedAvg):
    def prepare(self, net: Net, classes: int) -> Net:
        return Around(super().prepare(net, classes))

    def train(self, client: Any) -> Any:
        state = {f"shared.{k}": v for k, v in client.start.items()}
        trained = client.train(self, {}, state)
        own = {k.removeprefix("shared."): v for k, v in trained.state.items()}
        return self.finish(client, replace(trained, state=own))


def test_what_a_method_puts_around_the_network_is_of_the_same_task() -> None:
    config = method("fedavg", rounds=2).config
    plain, wrapped = (world("regression", of(config)) for of in (FedAvg, Wrapping))
    assert close(plain.model, wrapped.model)


def test_a_method_is_told_how_many_groups_labels_make() -> None:
    for name, groups in (("classify", 4), ("regression", 10), ("survival", 2), ("several", 0)):
        of: Any = method("fedavg", rounds=1)
        world(name, of)
        assert of.classes == groups
