"""Fine-tuned evaluation: one client's score by hand, the same run otherwise, and what fine-tuning is for."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.personal_layers import FedBABU
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD
from tests.fl.worlds import EVERYONE, TinyNet, data, parts, run, same


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**SETTINGS | settings))


def babu(**settings: Any) -> FedBABU:
    return FedBABU(FedBABU.Config(**SETTINGS | settings))


@pytest.mark.parametrize("make", [fedavg, babu])
def test_the_run_is_the_same_to_the_last_bit_and_only_its_last_line_says_more(make: Any) -> None:
    plain, tuned = run(make(), **WORLD), run(make(fine_tune_epochs=2), **WORLD)
    assert same(plain, tuned) and plain.history[:-1] == tuned.history[:-1]
    assert set(tuned.history[-1]) - set(plain.history[-1]) >= {"personal_accuracy", "client_accuracy"}
    assert {k: tuned.history[-1][k] for k in plain.history[-1]} == plain.history[-1]


def test_a_client_s_model_is_the_last_one_trained_on_its_examples() -> None:
    """Of one client that holds everything: full batches, so that their order is nothing."""
    d = data()
    method = fedavg(fine_tune_epochs=3, batch_size=80, local_epochs=1, rounds=1)
    world = run(method, d=d, index=[np.arange(80)], script=[([0], [0])])
    net = TinyNet()
    net.load_state_dict(world.model)
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
    x = torch.from_numpy((d.train.x - 0.4) / 0.25)
    for _ in range(3):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x), torch.from_numpy(d.train.y)).backward()
        optimiser.step()
    with torch.no_grad():
        test = torch.from_numpy((d.test.x - 0.4) / 0.25)
        wanted = float((net(test).argmax(1) == torch.from_numpy(d.test.y)).float().mean())
    assert world.history[-1]["client_accuracy"] == pytest.approx(wanted)


def test_a_head_that_was_never_trained_is_trained_here() -> None:
    """FedBABU's shared model answers by a random head; its clients' own models know their classes."""
    world = run(babu(fine_tune_epochs=20, momentum=0.9), d=data(), index=parts(data()), script=EVERYONE)
    assert world.history[-1]["personal_accuracy"] > world.history[-1]["accuracy"] + 0.1
