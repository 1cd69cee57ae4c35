"""SCAFFOLD: FedAvg in its first round, an invariant ever after, and memory that waits for delivery."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods import by_hand
from tests.fl.worlds import EVERYONE, SCRIPT, Stopped, World, close, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05}


def scaffold(**settings: object) -> Scaffold:
    return Scaffold(Scaffold.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | {"weighting": "uniform"} | settings)))  # type: ignore[arg-type]


def controls(world: World) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The last c that was sent, and the sum of all received c_k+ - c_k of earlier rounds / K."""
    last = max(a.round for a in world.artifacts if a.kind is Kind.CONTROL_GLOBAL)
    sent = next(a for a in world.artifacts if a.kind is Kind.CONTROL_GLOBAL and a.round == last)
    heard = [a.payload for a in world.artifacts if a.kind is Kind.CONTROL_DELTA and a.round < last]
    common = {k: torch.from_numpy(v) for k, v in sent.payload.items()}
    return common, {k: sum(torch.from_numpy(h[k]) for h in heard) / 5 for k in common}


def test_the_first_round_is_fedavg() -> None:
    assert close(run(scaffold(rounds=1)), run(avg(rounds=1)))


def test_later_rounds_are_not() -> None:
    assert not close(run(scaffold()), run(avg()), tolerance=1e-4)


@pytest.mark.parametrize("option", ["I", "II"])
def test_c_is_the_mean_of_all_c_k_also_when_replies_are_lost(option: str, tmp_path: Path) -> None:
    world = run(scaffold(option=option, rounds=4), folder=tmp_path, reply_loss=0.3)
    assert sum(r["lost"] for r in world.history) > 0
    common, mean = controls(world)
    assert any(v.abs().max() > 1e-3 for v in common.values())
    for name, value in common.items():
        torch.testing.assert_close(value, mean[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"option": "I", "weight_decay": 0.1, "server_lr": 0.5},
        {"momentum": 0.5, "lr_decay": 0.7, "weight_decay": 0.1},
        {"momentum": 0.5, "literal_public_code": True},
    ],
)
def test_it_is_the_algorithm_written_out(settings: dict[str, Any]) -> None:
    """Algorithm 1, with c_k advancing only where the answer arrived."""
    method = Scaffold(Scaffold.Config(**(by_hand.FULL | settings)))
    world, config = run(method, **by_hand.WORLD), method.config
    w = by_hand.vector(world.initial)
    c, own = torch.zeros_like(w), [torch.zeros_like(w) for _ in range(by_hand.K)]
    for t, heard in by_hand.rounds():
        rate, moves, learnt = config.lr * config.lr_decay**t, [], []
        for k in heard:
            decay, shift = config.weight_decay, c - own[k]
            inside, outside = (0.0, shift) if config.literal_public_code else (shift, 0.0)
            y = by_hand.descend(w, k, rate, config.momentum, lambda y, s=inside, d=decay: d * y + s, then=outside)
            length = 3 if config.literal_public_code or not config.momentum else 1 + 1.5 + 1.75
            after = own[k] - c + (w - y) / (length * rate)
            if config.option == "I":
                after = by_hand.gradient(w, k) + decay * w
            moves.append(y - w)
            learnt.append(after - own[k])
            own[k] = after
        share = 1 if config.literal_public_code else len(heard) / by_hand.K
        w = w + config.server_lr * torch.stack(moves).mean(0)
        c = c + share * torch.stack(learnt).mean(0)
    by_hand.agree(world, w)


def test_the_public_code_breaks_that_invariant(tmp_path: Path) -> None:
    world = run(scaffold(literal_public_code=True), folder=tmp_path)
    common, mean = controls(world)
    assert not torch.allclose(common["head.weight"], mean["head.weight"], atol=1e-4)


def test_a_single_full_batch_step_gives_the_gradient_as_c_k(tmp_path: Path) -> None:
    """tau = 1, c = c_k = 0: c_k+ = (w - y) / eta, the gradient; option I computes the same directly."""
    one = {"rounds": 1, "local_epochs": 1, "batch_size": 1000}
    direct = run(scaffold(option="I", **one), folder=tmp_path / "I", script=EVERYONE)
    moved = run(scaffold(option="II", **one), folder=tmp_path / "II", script=EVERYONE)
    for a, b in zip(direct.artifacts, moved.artifacts, strict=True):
        if a.kind is Kind.CONTROL_DELTA:
            for name in a.payload:
                torch.testing.assert_close(
                    torch.from_numpy(a.payload[name]), torch.from_numpy(b.payload[name]), rtol=0, atol=2e-5
                )


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    whole = run(scaffold(rounds=4))
    with pytest.raises(Stopped):
        run(scaffold(rounds=4), folder=tmp_path, stop_after=1)
    assert same(run(scaffold(rounds=4), folder=tmp_path), whole)


def test_two_processes_give_the_same_bits() -> None:
    assert same(run(scaffold(), workers=2, script=SCRIPT), run(scaffold()))


@pytest.mark.parametrize("nothing", [{"lr": 0.0}, {"local_epochs": 0}])
def test_a_client_that_cannot_move_learns_nothing(nothing: dict[str, float]) -> None:
    world = run(scaffold(**nothing))
    assert world.history[0]["rejected"] == 0 and same(world.model, world.initial)


def test_a_server_rate_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="server_lr must be > 0"):
        scaffold(server_lr=0.0)
