"""q-FFL is uniform FedAvg at q = 0, steps as printed for q > 0, and favours clients with large loss."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.qffl import QFFL
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import as_delivered, run, same


def qffl(**settings: Any) -> QFFL:
    return QFFL(QFFL.Config(**(SETTINGS | settings)))


def step(q: float, w: float, clients: list[tuple[float, float]], rate: float) -> float:
    """The server's new weight from clients of (model, loss)."""
    method = qffl(q=q, lr=rate)
    method.parameters = ("w",)
    arrived = [
        Delivery(
            client=k,
            examples=9 * k + 1,
            message={
                Kind.LOCAL_MODEL: {"w": torch.tensor([model])},
                Kind.LOCAL_LOSS: {"loss": torch.tensor(loss)},
            },
        )
        for k, (model, loss) in enumerate(clients)
    ]
    return float(method.combine({"model": {"w": torch.tensor([w])}}, as_delivered(arrived), 0)["model"]["w"])


def test_q_zero_is_uniform_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS, weighting="uniform"))
    assert same(run(qffl(q=0.0), **WORLD), run(fedavg, **WORLD))


def test_q_above_zero_is_not_fedavg() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS, weighting="uniform"))
    assert not same(run(qffl(q=1.0), **WORLD), run(fedavg, **WORLD))


def test_the_step_is_the_one_on_paper() -> None:
    """w = 1, eta = 0.5, q = 2; models 0 and 2, losses 2 and 1: u = (2, -2).

    Numerator 4 * 2 + 1 * (-2) = 6; denominator [2*2*4 + 4/0.5] + [2*1*4 + 1/0.5] = 24 + 10.
    """
    assert step(2.0, 1.0, [(0.0, 2.0), (2.0, 1.0)], rate=0.5) == pytest.approx(1 - 6 / 34)


def test_the_client_with_the_larger_loss_pulls_harder() -> None:
    assert step(1.0, 0.0, [(-1.0, 3.0), (1.0, 1.0)], rate=0.1) < 0
    assert step(0.0, 0.0, [(-1.0, 3.0), (1.0, 1.0)], rate=0.1) == pytest.approx(0.0)


def test_a_client_with_loss_zero_does_no_harm() -> None:
    assert abs(step(0.5, 0.0, [(1.0, 0.0), (1.0, 1.0)], rate=0.1)) < 1


def test_the_loss_sent_is_that_of_the_received_model(tmp_path: Path) -> None:
    world = run(qffl(rounds=1), folder=tmp_path)
    sent = [float(a.payload["loss"]) for a in world.artifacts if a.kind == Kind.LOCAL_LOSS]
    assert len(sent) == 4 and sum(sent) / 4 == pytest.approx(world.history[0]["loss_at_start"])
    assert all(1.0 < loss < 2.0 for loss in sent)  # four classes, nothing learned: about ln 4


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(qffl, tmp_path, **WORLD)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="q must be >= 0, got -1"):
        qffl(q=-1.0)
    with pytest.raises(UserError, match="lr must be > 0"):
        qffl(lr=0.0)
