"""SPEAR takes a batch apart where the layer enters a ReLU and nothing hides its zeros, and else nobody."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaudit.attacks.updates.analytic import Dense
from fedaudit.attacks.updates.spear import separate
from tests.attacks.world import digits

Values = NDArray[np.float64]
UNITS, RATE = 96, 0.1


def upload(n: int, activation: nn.Module, noise: float = 0.0) -> tuple[list[Values], list[Values], Values]:
    """Gradient and start of the first layer, by one step in single precision; and what entered it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, UNITS), activation, nn.Linear(UNITS, 10))
    x, y = (some[:n] for some in digits())
    seen: Tensor = torch.from_numpy((x.reshape(n, -1) - 0.3) / 0.37)
    nn.functional.cross_entropy(net(seen), torch.from_numpy(y)).backward()
    start, gradient = [], []
    for p in net[0].parameters():
        assert p.grad is not None
        sent = p.detach() - RATE * (p.grad + noise * torch.randn_like(p))
        start.append(p.detach().numpy().astype(np.float64))
        gradient.append((start[-1] - sent.numpy()) / RATE)
    return gradient, start, seen.numpy().astype(np.float64)


def count_exact(n: int, activation: nn.Module, noise: float = 0.0) -> int:
    (weight, bias), (first, shift), entered = upload(n, activation, noise)
    found = separate(Dense((weight, bias), (first, shift)), 20_000, np.random.default_rng(0))
    if found is None:
        return 0
    return int((np.abs(found[:, None] - entered[None]).mean(-1).min(0) < 0.01).sum())


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_image_of_a_small_batch_is_there_exactly(n: int) -> None:
    assert count_exact(n, nn.ReLU()) == n


def test_a_single_image_is_the_quotient_of_weights_and_bias() -> None:
    (weight, bias), (first, shift), _ = upload(1, nn.ReLU())
    found = separate(Dense((weight, bias), (first, shift)), 1, np.random.default_rng(0))
    row = np.abs(bias).argmax()
    assert found is not None and found.shape == (1, 64)
    np.testing.assert_allclose(found[0], weight[row] / bias[row], atol=1e-4)


def test_without_a_relu_no_image_of_a_batch_comes_out() -> None:
    assert count_exact(5, nn.Tanh()) == 0


def test_noise_as_large_as_the_gradient_hides_all_of_them() -> None:
    assert count_exact(5, nn.ReLU(), noise=0.01) == 0


def test_of_more_examples_than_come_apart_nobody_does() -> None:
    assert count_exact(40, nn.ReLU()) == 0
