"""FedAvg-FT and Datacenter: what a server with data of its own does."""

import numpy as np
import pytest
import torch

from fl.errors import UserError
from fl.methods.datacenter import Datacenter
from fl.methods.fedavg import FedAvg
from fl.methods.fedavg_ft import FedAvgFT
from tests.fl.worlds import close, data, parts, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}
SPARE = {"d": data(n=120), "index": parts(data(n=80))}  # the last 40 belong to no client


def ft(**settings: object) -> FedAvgFT:
    return FedAvgFT(FedAvgFT.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


def test_no_server_epochs_are_fedavg_to_the_last_bit() -> None:
    assert same(run(ft(server_epochs=0), **SPARE), run(avg(), **SPARE))  # type: ignore[arg-type]


def test_fine_tuning_moves_the_head_and_nothing_else() -> None:
    tuned, plain = run(ft(rounds=1), **SPARE), run(avg(rounds=1), **SPARE)  # type: ignore[arg-type]
    assert torch.equal(tuned["conv.weight"], plain["conv.weight"])
    assert torch.equal(tuned["fc.weight"], plain["fc.weight"])
    assert not torch.equal(tuned["head.weight"], plain["head.weight"])


def test_two_processes_give_the_same_bits() -> None:
    assert same(run(ft(), workers=2, **SPARE), run(ft(), **SPARE))  # type: ignore[arg-type]


def test_a_server_without_examples_is_refused() -> None:
    d = data(n=80)
    everything = [np.arange(80)[k::5] for k in range(5)]
    with pytest.raises(UserError, match="owns no example of some class"):
        run(ft(), d=d, index=everything)


def test_the_datacenter_is_fedavg_with_one_client_up_to_the_order_of_batches() -> None:
    d, one = data(), [parts(data())[4]]
    full = {"batch_size": 1000, "momentum": 0.0}  # one batch has one order
    pooled = Datacenter(Datacenter.Config(**(SAME | full)))  # type: ignore[arg-type]
    assert close(run(pooled, d=d, index=one), run(avg(**full), d=d, index=one, script=[([0], [0])]))


def test_the_datacenter_sends_nothing_and_beats_five_skewed_clients() -> None:
    pooled = run(Datacenter(Datacenter.Config(**(SAME | {"rounds": 12}))))  # type: ignore[arg-type]
    assert all(r["bytes_up"] == r["bytes_down"] == 0 for r in pooled.history)
    skewed = run(avg(rounds=12))
    assert pooled.history[-1]["accuracy"] > skewed.history[-1]["accuracy"]
