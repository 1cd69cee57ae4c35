"""FedAvg ends outside the project: it is torch.optim.SGD for one client, and pooled descent for many."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.data.scale import normalise
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import initialise
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from tests.fl.worlds import EVERYONE, SCRIPT, TinyNet, close, data, parts, run, same

SETTINGS = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}


def fedavg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))  # type: ignore[arg-type]


def test_one_client_is_torch_sgd_bit_for_bit() -> None:
    d, index = data(), [parts(data())[4]]
    world = run(fedavg(weight_decay=0.01), d=d, index=index, script=[([0], [0])])
    torch.set_num_threads(1)
    model = initialise(TinyNet, Streams(5))
    x = normalise(torch.from_numpy(d.train.x[index[0]]), d)
    y = torch.from_numpy(d.train.y[index[0]])
    for t in range(3):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
        order = Streams(5).torch("batches", t, 0)
        for _ in range(2):
            for batch in torch.randperm(len(y), generator=order).split(8):
                optimiser.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                optimiser.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(world[name], p.detach(), rtol=0, atol=2e-6)


def test_one_epoch_of_full_batches_is_one_step_on_the_pooled_loss() -> None:
    d, index = data(), parts(data())
    world = run(
        fedavg(rounds=1, local_epochs=1, batch_size=1000, momentum=0.0), d=d, index=index, script=EVERYONE
    )
    model = initialise(TinyNet, Streams(5))
    pooled = torch.cat([torch.from_numpy(i) for i in index])
    x = normalise(torch.from_numpy(d.train.x), d)[pooled]
    cross_entropy(model(x), torch.from_numpy(d.train.y)[pooled]).backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(world[name], (p - 0.05 * p.grad).detach(), rtol=0, atol=1e-6)


def test_uniform_weighting_differs_from_samples_on_unequal_clients() -> None:
    assert not close(run(fedavg()), run(fedavg(weighting="uniform")))


def test_one_process_and_two_agree_to_the_last_bit() -> None:
    assert same(run(fedavg()), run(fedavg(), workers=2))


def test_the_order_of_answers_does_not_matter() -> None:
    backwards = [(selected, list(reversed(answering))) for selected, answering in SCRIPT]
    assert close(run(fedavg()), run(fedavg(), script=backwards), tolerance=0)


def test_a_lost_reply_changes_the_average() -> None:
    heard, lossy = run(fedavg()), run(fedavg(), reply_loss=0.5)
    assert sum(r["lost"] for r in lossy.history) > 0
    assert not same(heard, lossy)


def test_an_empty_round_is_redrawn_or_skipped_and_says_so() -> None:
    redrawn, skipped = run(fedavg()), run(fedavg(), empty_round="skip")
    assert redrawn.history[1]["redraws"] == 1 and redrawn.history[1]["delivered"] == 3
    assert skipped.history[1]["delivered"] == 0
    assert skipped.history[1]["accuracy"] == skipped.history[0]["accuracy"]


def test_a_client_without_data_is_asked_and_never_counted() -> None:
    first = run(fedavg()).history[0]
    assert (first["selected"], first["delivered"]) == (5, 4)


def test_an_update_that_is_not_finite_is_rejected_whole() -> None:
    world = run(fedavg(lr=1e30, rounds=1))
    assert world.history[0]["rejected"] >= 1
    assert all(torch.isfinite(v).all() for v in world.model.values())


def test_the_settings_are_checked() -> None:
    with pytest.raises(UserError, match=r"method\.momentum must be < 1, got 1"):
        configure(FedAvg, {"momentum": 1.0}, "method")
    with pytest.raises(UserError, match=r"method\.batch_size must be >= 1, got 0"):
        configure(FedAvg, {"batch_size": 0}, "method")
