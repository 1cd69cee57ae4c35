"""BSM-FedAvg and FedLC: plain softmax where counts are equal, masks where classes are missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.class_softmax import BSMFedAvg, FedLC
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct, logit_gradient
from tests.fl.worlds import EVERYONE, TinyNet, close, data, run, same

V1 = [2.0, 1.0, 0.5, -0.5]  # logits; class counts (30, 10, 0, 0), label 0
ONLY = {"script": [([0], [0])]}  # client 0 has examples of class 0 alone


def bsm(**settings: Any) -> BSMFedAvg:
    return BSMFedAvg(BSMFedAvg.Config(**(SETTINGS | settings)))


def lc(**settings: Any) -> FedLC:
    return FedLC(FedLC.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def loss(method: RoundMethod, counts: tuple[int, ...] = (30, 10, 0, 0)) -> tuple[float, list[float]]:
    """The loss at V1 of a client with these class counts, and its gradient."""
    y = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
    client = Client(
        index=0,
        round=0,
        x=torch.zeros(len(y), 1),
        y=y,
        classes=4,
        message={},
        memory={},
        net=TinyNet(),
        streams=Streams(5),
    )
    const = method.compute_constants(client)
    return logit_gradient(lambda z: method.loss(direct(), z, torch.tensor([0]), const), V1)


def balanced(classes: int = 4) -> dict[str, Any]:
    """Clients that hold every class equally often, and different numbers of examples."""
    d = data(n=120)
    by_class = [list(np.flatnonzero(d.train.y == c)) for c in range(classes)]
    index = [
        np.array([by_class[c].pop() for c in range(classes) for _ in range(3 + 2 * (k % 2))]) for k in range(5)
    ]
    return {"d": d, "index": index, **WORLD}


@pytest.mark.parametrize(
    ("method", "value", "probabilities"),
    [(bsm(), 0.115671, [0.890768, 0.109232, 0.0, 0.0]), (lc(), 0.278695, [0.756770, 0.243230, 0.0, 0.0])],
)
def test_the_loss_and_its_gradient_are_the_ones_on_paper(
    method: RoundMethod, value: float, probabilities: list[float]
) -> None:
    found, gradient = loss(method)
    assert found == pytest.approx(value, abs=1e-5)
    assert gradient == pytest.approx([probabilities[0] - 1, *probabilities[1:]], abs=1e-5)
    assert gradient[2:] == [0.0, 0.0]  # exactly: classes the client lacks


def test_tau_scales_the_margins() -> None:
    """Offsets 2 n^(-1/4): the logits differ by 1 - 2 (30^-1/4 - 10^-1/4)."""
    gap = 1 - 2 * (30**-0.25 - 10**-0.25)
    assert loss(lc(tau=2.0))[0] == pytest.approx(np.log1p(np.exp(-gap)), abs=1e-5)


def test_leaving_out_the_true_class_is_the_printed_form() -> None:
    found, gradient = loss(lc(exclude_true_class=True))
    assert found == pytest.approx((1.0 - 10**-0.25) - (2.0 - 30**-0.25), abs=1e-5)
    assert gradient == pytest.approx([-1.0, 1.0, 0.0, 0.0], abs=1e-6)
    found, gradient = loss(lc(exclude_true_class=True), counts=(16, 16, 16, 0))
    assert found == pytest.approx(np.log(np.e + np.e**0.5) - 2.0, abs=1e-5)
    assert gradient == pytest.approx([-1.0, 0.622459, 0.377541, 0.0], abs=1e-5)


def test_the_printed_form_is_a_mean_over_the_batch() -> None:
    method, const = lc(exclude_true_class=True), {"shift": torch.zeros(4)}
    z, y = torch.tensor([V1, V1[::-1]]), torch.tensor([0, 1])
    one, other = (method.loss(direct(), z[i : i + 1], y[i : i + 1], const) for i in (0, 1))
    assert float(method.loss(direct(), z, y, const)) == pytest.approx(float(one + other) / 2)


@pytest.mark.parametrize("make", [bsm, lc, lambda: lc(tau=0.0)])
def test_equal_counts_over_all_classes_are_fedavg_to_the_last_bit(make: Any) -> None:
    world = balanced()
    assert same(run(make(), **world), run(fedavg(), **world))


@pytest.mark.parametrize("make", [bsm, lc, lambda: lc(tau=0.0)])
def test_missing_classes_are_not(make: Any) -> None:
    assert not close(run(make(), **WORLD), run(fedavg(), **WORLD), tolerance=1e-4)


def test_tau_zero_without_missing_classes_is_fedavg_whatever_the_counts() -> None:
    assert loss(lc(tau=0.0), (30, 10, 2, 1)) == loss(fedavg())
    assert loss(lc(tau=1.0), (30, 10, 2, 1))[0] != pytest.approx(loss(fedavg())[0], abs=0.05)


def test_tau_zero_with_missing_classes_is_the_softmax_over_the_clients_own() -> None:
    own = cross_entropy(torch.tensor([V1[:2]]), torch.tensor([0]))
    assert loss(lc(tau=0.0))[0] == pytest.approx(float(own), abs=1e-6)


@pytest.mark.parametrize("make", [bsm, lc, lambda **s: lc(exclude_true_class=True, **s)])
def test_a_client_of_one_class_moves_by_weight_decay_alone(make: Any) -> None:
    still = run(make(rounds=1, weight_decay=0.0), **ONLY)
    assert still.history[0]["rejected"] == 0 and same(still, still.initial)
    decayed = run(make(rounds=1, local_epochs=1, lr=0.1, weight_decay=0.5), **ONLY)
    for name, value in decayed.initial.items():  # seven examples in one step
        torch.testing.assert_close(decayed[name], value * (1 - 0.1 * 0.5), rtol=0, atol=1e-7)


def test_the_head_rows_of_missing_classes_get_no_gradient() -> None:
    for method in (bsm(weight_decay=0.0), lc(weight_decay=0.0)):
        world = run(method, script=[([1], [1])])  # client 1 lacks class 3
        moved = (world["head.weight"] != world.initial["head.weight"]).any(1)
        assert moved.tolist() == [True, True, True, False]


@pytest.mark.nightly
@pytest.mark.parametrize("make", [bsm, lc])
def test_a_run_that_was_stopped_continues_to_the_same_bits(make: Any, tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(lc(), script=EVERYONE), run(lc(), script=EVERYONE, workers=2))


def test_a_negative_tau_is_refused() -> None:
    with pytest.raises(UserError, match="tau must be >= 0, got -1"):
        lc(tau=-1.0)
