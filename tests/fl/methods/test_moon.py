"""MOON is FedAvg at mu = 0 and in everybody's first round; later its contrast has a known value."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.moon import MOON
from fedaudit.fl.model import state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.local import Handle
from tests.fl.methods import by_hand
from tests.fl.worlds import EVERYONE, Stopped, TinyNet, close, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}


def moon(**settings: object) -> MOON:
    return MOON(MOON.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


def test_mu_zero_is_fedavg_to_the_last_bit() -> None:
    assert same(run(moon(mu=0.0), reply_loss=0.2), run(avg(), reply_loss=0.2))


def test_the_first_round_is_fedavg_for_every_mu() -> None:
    assert close(run(moon(mu=5.0, rounds=1)), run(avg(rounds=1)))


def test_later_rounds_are_not() -> None:
    assert not close(run(moon(mu=5.0), script=EVERYONE), run(avg(), script=EVERYONE), tolerance=1e-4)


def test_the_contrast_is_ln_2_where_both_models_agree_and_known_where_not() -> None:
    torch.manual_seed(0)
    net, other = TinyNet(), TinyNet()
    x, y = torch.rand(5, 1, 6, 6), torch.tensor([0, 1, 2, 3, 0])
    method, now, then = moon(mu=2.0, temperature=0.5), state_of(net), state_of(other)
    plain = cross_entropy(net(x), y)
    agree = method.loss(Handle(net), x, y, {"global": then, "previous": then})
    assert float((agree - plain).detach()) == pytest.approx(2.0 * math.log(2), abs=1e-5)
    differ = method.loss(Handle(net), x, y, {"global": now, "previous": then})
    with torch.no_grad():
        a, b = net.features(x).numpy(), other.features(x).numpy()
    terms = []
    for u, v in zip(a, b, strict=True):
        far = float(u @ v) / math.sqrt(float(u @ u) * float(v @ v))
        terms.append(-math.log(math.exp(1 / 0.5) / (math.exp(1 / 0.5) + math.exp(far / 0.5))))
    assert float((differ - plain).detach()) == pytest.approx(2.0 * sum(terms) / 5, abs=1e-5)


def test_frozen_models_are_used_as_in_evaluation() -> None:
    """Dropout and the running statistics of BatchNorm stay out of the two frozen passes."""

    class Noisy(TinyNet):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop = torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)

        def features(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(self.norm(super().features(x)))

    net, x = Noisy(), torch.rand(6, 1, 6, 6)
    weights = state_of(net)
    frozen = Handle(net).frozen(weights)
    first = frozen.features(x)
    assert torch.equal(first, frozen.features(x)) and not first.requires_grad
    assert int(weights["norm.num_batches_tracked"]) == 0 and net.training and net.drop.training


def test_it_is_the_algorithm_written_out() -> None:
    """Algorithm 1; a client's previous model is the last it was heard with, the initial one before."""
    method = MOON(MOON.Config(mu=3.0, temperature=0.4, momentum=0.5, **by_hand.FULL))
    world = run(method, **by_hand.WORLD)
    w = by_hand.vector(world.initial)
    previous = [w] * by_hand.K
    for _, heard in by_hand.rounds():
        total, examples = torch.zeros_like(w), 0
        for k in heard:
            frozen = by_hand.net_at(w), by_hand.net_at(previous[k])

            def contrast(net: TinyNet, x: torch.Tensor, frozen: Any = frozen) -> torch.Tensor:
                z, ahead, behind = (normalize(m.features(x)) for m in (net, *frozen))
                near, far = (z * ahead).sum(1) / 0.4, (z * behind).sum(1) / 0.4
                return -3.0 * torch.log(near.exp() / (near.exp() + far.exp())).mean()

            previous[k] = by_hand.descend(w, k, 0.1, 0.5, extra=contrast)
            total = total + by_hand.SIZES[k] * previous[k]
            examples += by_hand.SIZES[k]
        w = total / examples
    by_hand.agree(world, w)


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    whole = run(moon(rounds=4), reply_loss=0.3)
    with pytest.raises(Stopped):
        run(moon(rounds=4), folder=tmp_path, stop_after=1, reply_loss=0.3)
    assert same(run(moon(rounds=4), folder=tmp_path, reply_loss=0.3), whole)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="temperature must be > 0"):
        moon(temperature=0.0)
