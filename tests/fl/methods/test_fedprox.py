"""FedProx is FedAvg at mu = 0 and for one step, not above, and pulls by mu times the gap."""

import pytest
import torch

from fl.errors import UserError
from fl.methods.fedavg import FedAvg
from fl.methods.fedprox import FedProx
from tests.fl.worlds import close, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5}


def prox(**settings: object) -> FedProx:
    return FedProx(FedProx.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["squared", "smooth_l1_mean"])
def test_mu_zero_is_fedavg_to_the_last_bit(form: str) -> None:
    assert same(run(prox(mu=0.0, prox_form=form), reply_loss=0.2), run(avg(), reply_loss=0.2))


def test_mu_above_zero_is_not_fedavg() -> None:
    assert not close(run(prox(mu=1.0)), run(avg()), tolerance=1e-3)


def test_one_local_step_is_fedavg_for_every_mu() -> None:
    one = {"local_epochs": 1, "batch_size": 1000}
    assert same(run(prox(mu=7.0, **one)), run(avg(**one)))


def test_the_pull_is_mu_times_the_gap_with_its_sign() -> None:
    start, now = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([4.0, -3.0])}
    zero = {"w": torch.zeros(2)}
    assert prox(mu=0.5).correct(zero, now, start, {})["w"].tolist() == [1.5, -0.5]
    # smooth L1: gap 3 is cut to 1, gap -1 stays; mean over 2 elements of 1 tensor
    l1 = prox(mu=0.5, prox_form="smooth_l1_mean").correct(zero, now, start, {})
    assert l1["w"].tolist() == [0.25, -0.25]


def test_a_larger_mu_moves_the_model_less() -> None:
    moves = []
    for mu in (0.0, 1.0, 5.0):
        world = run(prox(mu=mu, rounds=1, momentum=0.0))
        moves.append(sum(float((world[k] - world.initial[k]).square().sum()) for k in world.model))
    assert moves[0] > moves[1] > moves[2]


def test_a_negative_mu_is_refused() -> None:
    with pytest.raises(UserError, match=r"fedprox.mu must be >= 0, got -1"):
        prox(mu=-1.0)
