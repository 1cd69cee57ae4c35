"""FedAvg-FT and Datacenter: what a server with data of its own does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.methods.datacenter import Datacenter
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedavg_ft import FedAvgFT
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import TinyNet, data, parts, run, same

SPARE = {"d": data(n=120), "index": parts(data(n=80)), **WORLD}  # the last 40 belong to no client


def ft(**settings: Any) -> FedAvgFT:
    return FedAvgFT(FedAvgFT.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def datacenter(**settings: Any) -> Datacenter:
    return Datacenter(Datacenter.Config(**(SETTINGS | settings)))


class Watched(FedAvgFT):
    """Keeps what the server trains on."""

    Config = FedAvgFT.Config

    def fine_tune(self, server: Client) -> Reply:
        self.x, self.y = server.x, server.y
        return super().fine_tune(server)


def test_no_server_epochs_are_fedavg_to_the_last_bit() -> None:
    assert same(run(ft(server_epochs=0), **SPARE), run(fedavg(), **SPARE))


def test_fine_tuning_moves_the_head_and_nothing_else() -> None:
    tuned, plain = run(ft(rounds=1), **SPARE), run(fedavg(rounds=1), **SPARE)
    for name in plain.model:
        assert torch.equal(tuned[name], plain[name]) != name.startswith("head")


def test_fine_tuning_is_torch_sgd_on_the_head() -> None:
    """By hand with torch's optimiser, from FedAvg's first model, in the batches of the server's stream."""
    method = Watched(
        Watched.Config(
            **(SETTINGS | {"rounds": 1, "server_epochs": 3, "server_lr": 0.2, "server_momentum": 0.9}),
            server_examples=24,
            server_weight_decay=0.3,
        )
    )
    tuned = run(method, **SPARE)
    net = TinyNet()
    net.load_state_dict(run(fedavg(rounds=1), **SPARE).model)
    optimiser = torch.optim.SGD(net.head.parameters(), lr=0.2, momentum=0.9, weight_decay=0.3)
    order = Streams(5).torch("fine_tune", 0, -1)
    for _ in range(3):
        for batch in torch.randperm(24, generator=order).split(8):
            optimiser.zero_grad()
            cross_entropy(net(method.x[batch]), method.y[batch]).backward()
            optimiser.step()
    for name, p in net.named_parameters():
        torch.testing.assert_close(tuned[name], p.detach(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("wanted", "each"), [(24, 6), (27, 6), (1000, None)])
def test_the_servers_set_is_balanced_and_no_clients(wanted: int, each: int | None) -> None:
    method = Watched(Watched.Config(**(SETTINGS | {"rounds": 1}), server_examples=wanted))
    run(method, **SPARE)
    d, held = SPARE["d"], np.concatenate(SPARE["index"])
    fewest = np.bincount(np.delete(d.train.y, held)).min()
    assert torch.bincount(method.y).tolist() == [each or fewest] * 4
    free = normalise(torch.from_numpy(np.delete(d.train.x, held, 0)), d)
    assert {tuple(x.flatten().tolist()) for x in method.x} <= {tuple(x.flatten().tolist()) for x in free}


def test_without_an_average_there_is_nothing_to_tune() -> None:
    nobody = run(ft(), d=SPARE["d"], index=SPARE["index"], script=[([0, 1], [])], empty_round="skip")
    assert same(nobody.model, nobody.initial)


def test_clients_start_from_the_tuned_model(tmp_path: Path) -> None:
    world = run(ft(), folder=tmp_path, **SPARE)
    down = [a for a in world.artifacts if a.channel is Channel.DOWNLINK and a.round == 1]
    first = run(ft(rounds=1), **SPARE)
    assert all(np.array_equal(v, first[k].numpy()) for k, v in down[0].payload.items())


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(ft, tmp_path / "a", **SPARE)
    assert continues(datacenter, tmp_path / "b", **SPARE)


@pytest.mark.nightly
def test_two_processes_give_the_same_bits() -> None:
    assert same(run(ft(), workers=2, **SPARE), run(ft(), **SPARE))


def test_a_server_without_examples_is_refused_before_the_first_round() -> None:
    d = data(n=80)
    everything = [np.arange(80)[k::5] for k in range(5)]
    nobody = [([0], [])]
    with pytest.raises(UserError, match="owns no example of some class"):
        run(ft(), d=d, index=everything, script=nobody, empty_round="skip")


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [
        ("server_examples", -1, "server_examples must be >= 0, got -1"),
        ("server_momentum", 1.0, "server_momentum must be < 1, got 1"),
        ("server_examples", 3, "server_examples must be >= 4, one of each class, got 3"),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: float, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        run(ft(**{setting: value}), **SPARE)


# Datacenter -------------------------------------------------------------------------------


def test_the_datacenter_is_fedavg_with_one_client_to_the_last_bit() -> None:
    d, one = data(), [parts(data())[4]]
    assert same(run(datacenter(), d=d, index=one), run(fedavg(), d=d, index=one, script=[([0], [0])]))


def test_the_datacenter_is_one_client_that_holds_everything() -> None:
    d, pooled = data(), [np.concatenate(parts(data()))]
    central = run(datacenter(lr_decay=0.5))
    assert same(central, run(fedavg(lr_decay=0.5), d=d, index=pooled, script=[([0], [0])]))
    assert [r["samples_used"] for r in central.history] == [68, 68, 68]


def test_the_datacenter_sends_nothing_and_beats_five_skewed_clients(tmp_path: Path) -> None:
    pooled = run(datacenter(rounds=12), folder=tmp_path)
    assert {a.channel for a in pooled.artifacts} == {Channel.RELEASE}
    assert all(r["bytes_up"] == r["bytes_down"] == 0 for r in pooled.history)
    skewed = run(fedavg(rounds=12))
    assert pooled.history[-1]["accuracy"] > skewed.history[-1]["accuracy"]
