"""FedMMD is FedAvg at weight 0 and for a single step, and its term is the discrepancy by hand."""

from math import exp
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedmmd import FedMMD, compute_squared_mmd
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, close, run, same


def fedmmd(**settings: Any) -> FedMMD:
    return FedMMD(FedMMD.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def test_weight_zero_is_fedavg_to_the_last_bit() -> None:
    assert same(run(fedmmd(weight=0.0), **WORLD), run(fedavg(), **WORLD))


def test_weight_above_zero_is_not_fedavg() -> None:
    assert not close(run(fedmmd(weight=0.1), **WORLD), run(fedavg(), **WORLD))


def test_one_step_is_fedavg_whatever_the_weight() -> None:
    """At the received model both streams agree: the term is zero and has no gradient."""
    one = {"rounds": 1, "local_epochs": 1, "batch_size": 100}
    assert close(run(fedmmd(weight=1.0, **one)), run(fedavg(**one)))


def test_the_discrepancy_by_hand() -> None:
    """One point at 0 and one at 2: squared distance 4, and 4 is also the mean over the pairs."""
    kernel = sum(exp(-1 / 2.0**i) for i in range(-2, 3))
    found = compute_squared_mmd(torch.tensor([[0.0]]), torch.tensor([[2.0]]))
    assert float(found) == pytest.approx(5 + 5 - 2 * kernel, rel=1e-5)


def test_the_discrepancy_of_unequal_samples_by_hand() -> None:
    """{0, 0} against {3}: of six ordered pairs four are 9 apart, so b = 6."""
    cross = sum(exp(-9 / (6 * 2.0**i)) for i in range(-2, 3))
    found = compute_squared_mmd(torch.tensor([[0.0], [0.0]]), torch.tensor([[3.0]]))
    assert float(found) == pytest.approx(5 + 5 - 2 * cross, rel=1e-5)


def test_equal_points_have_neither_discrepancy_nor_gradient() -> None:
    b = torch.ones(3, 2, requires_grad=True)
    value = compute_squared_mmd(torch.ones(3, 2), b)
    (grad,) = torch.autograd.grad(value, [b])
    assert float(value.detach()) == 0 and not grad.any()


def test_the_bandwidth_is_a_constant() -> None:
    """The gradient for one point against one: -2 * 2 * distance * sum of -exp(-1/2^i) / (4 * 2^i)."""
    b = torch.tensor([[2.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(compute_squared_mmd(torch.tensor([[0.0]]), b), [b])
    slope = -2 * sum(-exp(-1 / 2.0**i) / (4 * 2.0**i) for i in range(-2, 3)) * 2 * 2.0
    assert float(grad) == pytest.approx(slope, rel=1e-4)


def test_a_larger_weight_keeps_features_nearer() -> None:
    """The discrepancy between received and trained features falls as the weight grows."""
    from fedaudit.fl.training.local import Handle
    from tests.fl.worlds import TinyNet

    x = torch.randn(30, 1, 6, 6, generator=torch.Generator().manual_seed(0))

    def gap(weight: float) -> float:
        world = run(fedmmd(weight=weight, rounds=1, lr=0.02, momentum=0.0), script=[([4], [4])])
        net = Handle(TinyNet())
        a, b = (net.replace_weights(s).features(x).detach() for s in (world.initial, world.model))
        return float(compute_squared_mmd(a, b))

    assert gap(0.0) > gap(0.1) > gap(1.0)


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(fedmmd, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(fedmmd(), script=EVERYONE), run(fedmmd(), script=EVERYONE, workers=2))


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(UserError, match="weight must be >= 0, got -1"):
        fedmmd(weight=-1.0)
