"""FedProx is FedAvg at mu = 0 and for one step, not above, and pulls by mu times the gap."""

import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedprox import FedProx
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import close, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5, "weight_decay": 0.01}


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


def test_the_smooth_l1_pull_is_the_derivative_torch_finds() -> None:
    """mu times the mean over two tensors of torch's own element-wise mean smooth-L1 distance."""
    start = {"w": torch.tensor([1.0, -2.0]), "b": torch.tensor([[0.5, 0.5, 3.0]])}
    now = {"w": torch.tensor([4.0, -2.5]), "b": torch.tensor([[0.0, 0.75, -1.0]])}
    leaves = {k: v.clone().requires_grad_() for k, v in now.items()}
    distance = 0.6 * sum(smooth_l1_loss(leaves[k], start[k]) for k in leaves) / 2
    expected = torch.autograd.grad(distance, list(leaves.values()))
    zero = {k: torch.zeros_like(v) for k, v in now.items()}
    found = prox(mu=0.6, prox_form="smooth_l1_mean").correct(zero, now, start, {})
    for a, b in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_larger_mu_moves_the_model_less() -> None:
    moves = []
    for mu in (0.0, 1.0, 5.0):
        world = run(prox(mu=mu, rounds=1, momentum=0.0))
        moves.append(sum(float((world[k] - world.initial[k]).square().sum()) for k in world.model))
    assert moves[0] > moves[1] > moves[2]


def test_a_negative_mu_is_refused() -> None:
    with pytest.raises(UserError, match="mu must be >= 0, got -1"):
        prox(mu=-1.0)
