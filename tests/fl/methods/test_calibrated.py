"""BSM-FedAvg and FedLC: plain softmax where counts are equal, masks where classes are missing."""

import pytest
import torch

from fl.errors import UserError
from fl.method import Client
from fl.methods.bsm_fedavg import BSMFedAvg
from fl.methods.fedavg import FedAvg
from fl.methods.fedlc import FedLC
from fl.methods.rebafl import ReBaFL
from tests.fl.worlds import EVERYONE, close, data, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}
LOGITS = torch.tensor([[2.0, 1.0, 0.5, -0.5]], requires_grad=True)  # V1: y = 0, n = (30, 10, 0, 0)
COUNTED = torch.tensor([0] * 30 + [1] * 10)


def bsm(**settings: object) -> BSMFedAvg:
    return BSMFedAvg(BSMFedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


def lc(**settings: object) -> FedLC:
    return FedLC(FedLC.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


def loss(method: FedAvg, y: torch.Tensor = COUNTED) -> tuple[float, torch.Tensor]:
    """Loss of the vector's sample and its gradient with respect to the logits."""
    client = Client(index=0, round=0, x=torch.zeros(len(y), 1), y=y, classes=4, message={}, memory={},
                    net=None, streams=None)  # type: ignore[arg-type]  # fmt: skip
    value = method.loss(lambda x: x, LOGITS, torch.tensor([0]), method.constants(client))  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(value, LOGITS)
    return float(value), gradient[0]


def balanced() -> tuple[object, list[object]]:
    """Clients that hold every class equally often."""
    d = data(n=120)
    by_class = [[i for i, c in enumerate(d.train.y) if c == k] for k in range(4)]
    import numpy as np

    return d, [np.array([i for c in by_class for i in c[4 * k : 4 * k + 4]]) for k in range(5)]


@pytest.mark.parametrize(("method", "value"), [(bsm(), 0.115671), (lc(), 0.278695)])
def test_the_vector_of_the_specification(method: FedAvg, value: float) -> None:
    found, gradient = loss(method)
    assert found == pytest.approx(value, abs=1e-5)
    assert gradient[2:].tolist() == [0.0, 0.0]  # classes the client lacks


def test_leaving_out_the_true_class_is_the_printed_form() -> None:
    found, _ = loss(lc(exclude_true_class=True))
    offsets = (30**-0.25, 10**-0.25)
    assert found == pytest.approx((1.0 - offsets[1]) - (2.0 - offsets[0]), abs=1e-5)


@pytest.mark.parametrize("make", [bsm, lc])
def test_equal_counts_over_all_classes_are_fedavg_to_the_last_bit(make) -> None:  # type: ignore[no-untyped-def]
    d, index = balanced()
    world = {"d": d, "index": index, "script": EVERYONE, "reply_loss": 0.2}
    assert same(run(make(), **world), run(avg(), **world))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [bsm, lc, lambda: lc(tau=0.0)])
def test_missing_classes_are_not(make) -> None:  # type: ignore[no-untyped-def]
    assert not close(run(make()), run(avg()), tolerance=1e-4)


def test_a_client_of_one_class_does_not_move_under_balanced_softmax() -> None:
    only = [([0], [0])]  # client 0 has one class
    world = run(bsm(rounds=1), script=only)
    assert same(world, world.initial)


def test_balanced_softmax_is_rebafl_without_its_other_parts() -> None:
    plain = ReBaFL(ReBaFL.Config(epsilon=0.0, mu=0.0, weight_decay=0.0, **SAME))  # type: ignore[arg-type]
    assert same(run(bsm()), run(plain))


def test_a_negative_tau_is_refused() -> None:
    with pytest.raises(UserError, match=r"fedlc.tau must be >= 0, got -1"):
        lc(tau=-1.0)
