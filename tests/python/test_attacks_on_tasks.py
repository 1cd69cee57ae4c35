"""Membership by each task's own loss: models that know their rows by heart, and such that saw nobody."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import fedaudit as fa
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import load_task

Rows = tuple[Tensor, Tensor]
SEPARABLE = ("several", "regression", "segment")


def deal(task: str) -> tuple[Rows, Rows]:
    """60 rows to train on and 120 that nobody trains on."""
    draws = np.random.default_rng(4)
    if task == "segment":
        x = torch.from_numpy(draws.random((180, 1, 4, 4), dtype=np.float32))
        y: Any = torch.from_numpy(draws.integers(0, 2, (180, 4, 4)))
    else:
        table, target = load_diabetes(return_X_y=True)
        order = draws.permutation(442)[:180]
        x = torch.tensor(table[order] / table.std(0), dtype=torch.float32)
        number = torch.tensor((target[order] - 152) / 77, dtype=torch.float32)
        times = torch.tensor(draws.exponential(1, 180), dtype=torch.float32) * torch.exp(-number / 2)
        seen = torch.tensor(draws.random(180) < 0.7, dtype=torch.float32)
        y = {
            "several": torch.stack([number + torch.tensor(draws.normal(size=180)) > c for c in (0, 1)], 1).long(),
            "regression": number,
            "survival": torch.stack([times, seen], 1),
        }[task]
    return (x[:60], y[:60]), (x[60:], y[60:])


def build(task: str, rows: Rows, steps: int) -> nn.Module:
    torch.manual_seed(0)
    if task == "segment":
        net = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.Unflatten(1, (2, 4, 4))
        )
    else:
        net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2 if task == "several" else 1))
    optimiser, wanted = torch.optim.Adam(net.parameters(), 0.01), load_task(task)()
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(wanted.loss(net(rows[0]), rows[1]))
        optimiser.step()
    return net


def find_area(result: fa.AttackResult) -> Any:
    return next(e for e in result.evidence if e.measure == "auc" and e.control == "none")


@pytest.mark.parametrize("task", SEPARABLE)
def test_a_model_that_knows_its_rows_by_heart_tells_them(task: str) -> None:
    members, others = deal(task)
    net = build(task, members, 300)
    area = find_area(fa.attack("loss_threshold", model=net, members=members, nonmembers=others))
    with torch.no_grad():
        x, y = (torch.cat(pair) for pair in zip(members, others, strict=True))
        losses = load_task(task)().losses(net(x), y).numpy()
    assert area.value > 0.8
    if task != "regression":  # without groups members and others are compared all with all
        expected = roc_auc_score(np.repeat([True, False], [60, 120]), -losses)
        assert area.value == pytest.approx(expected, abs=1e-6)


def test_members_and_others_of_a_survival_are_judged_in_one_risk_set() -> None:
    members, others = deal("survival")
    net = build("survival", members, 300)
    area = find_area(fa.attack("loss_threshold", model=net, members=members, nonmembers=others, task="survival"))
    with torch.no_grad():
        x, y = (torch.cat(pair) for pair in zip(members, others, strict=True))
        ordered = load_task("survival")().scores(net(x), y).numpy()
    found = roc_auc_score(np.repeat([True, False], [60, 120]), ordered)
    assert area.interval[0] < found < area.interval[1]


@pytest.mark.parametrize("task", SEPARABLE)
def test_a_model_that_saw_nobody_tells_nobody(task: str) -> None:
    members, others = deal(task)
    area = find_area(
        fa.attack("loss_threshold", model=build(task, members, 0), members=members, nonmembers=others)
    )
    assert area.interval[0] < 0.5 < area.interval[1]


def test_shadow_models_train_on_the_same_task() -> None:
    members, others = deal("regression")
    net = build("regression", members, 300)
    own = others[0][60:], others[1][60:]
    area = find_area(
        fa.attack(
            "lira",
            model=net,
            members=members,
            nonmembers=(others[0][:60], others[1][:60]),
            auxiliary=own,
            training={"local_epochs": 20, "batch_size": 20, "lr": 0.05},
            shadows=4,
        )
    )
    assert area.value > 0.7


def test_times_and_events_are_said_since_they_may_be_two_numbers() -> None:
    members, others = deal("survival")
    with pytest.raises(UserError, match="times and events, or two numbers"):
        fa.attack("loss_threshold", model=build("survival", members, 0), members=members, nonmembers=others)


def test_a_model_of_other_outputs_than_the_task_wants_is_refused() -> None:
    members, others = deal("regression")
    net = nn.Linear(10, 3)
    with pytest.raises(UserError, match="gives 3 numbers an example, and labels of regression want 1: a number"):
        fa.attack("loss_threshold", model=net, members=members, nonmembers=others)


@pytest.mark.parametrize("name", ["entropy", "confidence"])
def test_attacks_on_classes_say_that_they_need_them(name: str) -> None:
    members, others = deal("regression")
    with pytest.raises(UserError, match="it needs a class for each example"):
        fa.attack(name, model=build("regression", members, 0), members=members, nonmembers=others)
