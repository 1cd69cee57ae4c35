"""FedNova: FedAvg where all took equally many steps; norms and steps known by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fednova import FedNova, step_weight
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods import by_hand
from tests.fl.methods.worlds_of_methods import continues
from tests.fl.worlds import EVERYONE, as_delivered, close, data, parts, run, same

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
        Delivery(
            client=k,
            examples=10,
            message={
                Kind.NORMALIZED_DELTA: {"w": torch.tensor([-w / (rate * tau)])},
                Kind.NUM_STEPS: {"steps": torch.tensor(tau), "norm": torch.tensor(float(tau))},
            },
        )
        for k, (w, tau) in enumerate(zip((-0.1, -0.9), taus, strict=True))
    ]
    state = method.combine({"model": {"w": torch.zeros(1)}, "buffer": {}}, as_delivered(deliveries), 0)
    assert float(state["model"]["w"]) == pytest.approx(expected)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_equal_steps_are_fedavg(momentum: float) -> None:
    equal = parts(data(), sizes=(16, 16, 16, 0, 16))
    world = {"index": equal, "script": EVERYONE, "reply_loss": 0.2}
    assert close(run(nova(momentum=momentum), **world), run(avg(momentum=momentum), **world), 2e-6)  # type: ignore[arg-type]


def test_unequal_steps_are_not() -> None:
    assert not close(run(nova()), run(avg()), tolerance=1e-4)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.5, "weighting": "uniform"},
        {"mu": 2.0, "lr_decay": 0.7},
        {"server_momentum": 0.6, "lr_decay": 0.7, "momentum": 0.5},
    ],
)
def test_it_is_the_algorithm_written_out(settings: dict[str, Any]) -> None:
    """Clients of 7, 20, 11 and 30 examples take 2, 6, 4 and 8 steps; norms by the recursions."""
    method = nova(rounds=5, **settings)
    c = method.config
    world = run(method, **by_hand.WORLD)
    w = by_hand.vector(world.initial)
    buffer = torch.zeros_like(w)
    for t, heard in by_hand.rounds():
        rate, total, effective = c.lr * c.lr_decay**t, 0.0, 0.0
        mean = torch.zeros_like(w)
        for k in heard:
            drawn = by_hand.batches(t, k, 8, 2)
            after = by_hand.descend(w, k, rate, c.momentum, lambda v, w=w: c.mu * (v - w), batches=drawn)
            norm = step = 0.0
            for _ in drawn:
                step = c.momentum * step + 1
                norm = norm * (1 - rate * c.mu) + step
            p = 1.0 if c.weighting == "uniform" else by_hand.SIZES[k]
            mean = mean + p * (w - after) / (rate * norm)
            effective += p * (len(drawn) if c.mu else norm)
            total += p
        buffer = c.server_momentum * buffer + effective / total * mean / total
        w = w - rate * buffer
    by_hand.agree(world, w)


def test_twice_as_many_steps_down_a_slope_go_twice_as_far() -> None:
    def end(tau: int) -> float:
        sent = {
            Kind.NORMALIZED_DELTA: {"w": torch.tensor([1.5])},  # a linear loss has one gradient
            Kind.NUM_STEPS: {"steps": torch.tensor(tau), "norm": torch.tensor(float(tau))},
        }
        start = {"model": {"w": torch.zeros(1)}, "buffer": {}}
        state = nova().combine(start, as_delivered([Delivery(client=0, examples=3, message=sent)]), 0)
        return float(state["model"]["w"])

    assert end(1) == pytest.approx(-0.05 * 1.5) and end(2) == pytest.approx(2 * end(1))


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(lambda: nova(server_momentum=0.6), tmp_path, reply_loss=0.25)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(nova(), workers=2), run(nova()))


@pytest.mark.parametrize("nothing", [{"lr": 0.0}, {"lr": 0.1, "lr_decay": 0.0}])
def test_a_rate_of_zero_divides_by_nothing(nothing: dict[str, float]) -> None:
    world = run(nova(**nothing))
    assert all(r["rejected"] == 0 for r in world.history)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [({"mu": -1.0}, "mu must be >= 0, got -1"), ({"server_momentum": 1.0}, "server_momentum must be < 1, got 1")],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        nova(**bad)


def test_a_client_that_took_no_step_is_left_out() -> None:
    world = run(nova(local_epochs=0))
    assert all(torch.equal(world[k], world.initial[k]) for k in world.model)


def test_momentum_with_a_proximal_term_is_refused() -> None:
    with pytest.raises(UserError, match="have no derivation"):
        nova(mu=0.1, momentum=0.9)
