"""FedNova: FedAvg where all took equally many steps; norms and steps known by hand."""

import pytest
import torch

from fl.artifact import Kind
from fl.errors import UserError
from fl.method import Delivery
from fl.methods.fedavg import FedAvg
from fl.methods.fednova import FedNova, step_weight
from tests.fl.worlds import EVERYONE, close, data, parts, run

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05}


def nova(**settings: object) -> FedNova:
    return FedNova(FedNova.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "momentum", "norm"), [(3, 0.9, 5.61), (5, 0.5, 8.0625), (1, 0.7, 1.0), (4, 0.0, 4.0)]
)
def test_the_norms_of_the_specification(steps: int, momentum: float, norm: float) -> None:
    assert step_weight(steps, momentum) == pytest.approx(norm)
    s = v = 0.0  # the recursion: s <- rho s + 1, v <- v + s
    for _ in range(steps):
        s = momentum * s + 1
        v += s
    assert step_weight(steps, momentum) == pytest.approx(v)


@pytest.mark.parametrize(("taus", "expected"), [((1, 3), -0.4), ((2, 2), -0.5)])
def test_the_scalar_case_of_the_specification(taus: tuple[int, int], expected: float) -> None:
    """w = 0, w_1 = -0.1, w_2 = -0.9, p = 1/2."""
    method, rate = nova(lr=1.0), 1.0
    deliveries = [
        Delivery(client=k, examples=10, message={
            Kind.NORMALIZED_DELTA: {"w": torch.tensor([-w / (rate * tau)])},
            Kind.NUM_STEPS: {"steps": torch.tensor(tau), "norm": torch.tensor(float(tau))},
        })
        for k, (w, tau) in enumerate(zip((-0.1, -0.9), taus, strict=True))
    ]  # fmt: skip
    state = method.server({"model": {"w": torch.zeros(1)}, "buffer": {}}, iter(deliveries), 0)
    assert float(state["model"]["w"]) == pytest.approx(expected)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_equal_steps_are_fedavg(momentum: float) -> None:
    equal = parts(data(), sizes=(16, 16, 16, 0, 16))
    world = {"index": equal, "script": EVERYONE, "reply_loss": 0.2}
    assert close(run(nova(momentum=momentum), **world), run(avg(momentum=momentum), **world), 2e-6)  # type: ignore[arg-type]


def test_unequal_steps_are_not() -> None:
    assert not close(run(nova()), run(avg()), tolerance=1e-4)


def test_a_client_that_took_no_step_is_left_out() -> None:
    world = run(nova(local_epochs=0))
    assert all(torch.equal(world[k], world.initial[k]) for k in world.model)


def test_momentum_with_a_proximal_term_is_refused() -> None:
    with pytest.raises(UserError, match="have no derivation"):
        nova(mu=0.1, momentum=0.9)
