"""FedDyn: FedAvg without its terms, a hand-derived first round, and an invariant of the duals."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddyn import FedDyn
from fedaudit.fl.methods.fedprox import FedProx
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods import by_hand
from tests.fl.worlds import Stopped, close, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}


def dyn(**settings: object) -> FedDyn:
    return FedDyn(FedDyn.Config(**(SAME | settings)))  # type: ignore[arg-type]


def test_without_alpha_and_correction_it_is_uniform_fedavg_to_the_last_bit() -> None:
    plain = FedAvg(FedAvg.Config(weighting="uniform", **SAME))  # type: ignore[arg-type]
    assert same(run(dyn(alpha=0.0, server_correction=False), reply_loss=0.2), run(plain, reply_loss=0.2))


def test_alpha_zero_alone_is_not_fedavg() -> None:
    plain = FedAvg(FedAvg.Config(weighting="uniform", **SAME))  # type: ignore[arg-type]
    assert not close(run(dyn(alpha=0.0)), run(plain), tolerance=1e-4)


def test_the_first_round_extrapolates_a_fedprox_round() -> None:
    """All duals are 0: local loss is FedProx with mu = alpha, and w1 = m + (|S|/K)(m - w0)."""
    script = [([0, 1, 2], [0, 1, 2])]
    first = run(dyn(rounds=1, alpha=0.3), script=script)
    prox = FedProx(FedProx.Config(mu=0.3, weighting="uniform", **(SAME | {"rounds": 1})))  # type: ignore[arg-type]
    m = run(prox, script=script)
    for k in first.model:
        expected = m[k] + (3 / 5) * (m[k] - m.initial[k])
        torch.testing.assert_close(first[k], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"momentum": 0.5, "lr_decay": 0.7}, {"server_correction": False}, {"eval_model": "mean_all_latest"}],
)
def test_it_is_the_algorithm_written_out(settings: dict[str, Any]) -> None:
    """Algorithm 1, with g_k advancing only where the answer arrived; and h is the mean of all g_k."""
    method = FedDyn(FedDyn.Config(**(by_hand.FULL | {"alpha": 0.3} | settings)))
    world, alpha = run(method, **by_hand.WORLD), 0.3
    w = by_hand.vector(world.initial)
    h, g = torch.zeros_like(w), [torch.zeros_like(w) for _ in range(by_hand.K)]
    latest = [w] * by_hand.K
    for t, heard in by_hand.rounds():
        start, rate = w, method.config.lr * method.config.lr_decay**t
        for k in heard:
            latest[k] = by_hand.descend(
                w, k, rate, method.config.momentum, lambda v, w=w, g=g[k]: alpha * (v - w) - g
            )
            g[k] = g[k] - alpha * (latest[k] - start)
        h = h - alpha / by_hand.K * sum(latest[k] - start for k in heard)
        torch.testing.assert_close(h, torch.stack(g).mean(0))
        w = torch.stack([latest[k] for k in heard]).mean(0)
        w = w - h / alpha if method.config.server_correction else w
    served = method.config.eval_model == "served"
    by_hand.agree(world, w if served else torch.stack(latest).mean(0))


def test_the_gradient_carries_the_dual_and_the_pull() -> None:
    grads = {"w": torch.tensor([1.0, 1.0])}
    now, start = {"w": torch.tensor([3.0, 0.0])}, {"w": torch.tensor([1.0, 1.0])}
    dual = {"dual": {"w": torch.tensor([0.5, -2.0])}}
    assert dyn(alpha=0.5).correct(grads, now, start, dual)["w"].tolist() == [1.5, 2.5]


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    four = {"rounds": 4, "eval_model": "mean_all_latest"}
    whole = run(dyn(**four), reply_loss=0.3)
    with pytest.raises(Stopped):
        run(dyn(**four), folder=tmp_path, stop_after=1, reply_loss=0.3)
    assert same(run(dyn(**four), folder=tmp_path, reply_loss=0.3), whole)


def test_a_negative_alpha_is_refused() -> None:
    with pytest.raises(UserError, match=r"alpha must be >= 0, got -0.1"):
        dyn(alpha=-0.1)
