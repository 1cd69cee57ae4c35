"""Ghost clipping: the same sum as clipping the gradient of each example, for networks that it fits."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.moon import MOON
from fedaudit.fl.model import Net
from fedaudit.fl.models.resnet18 import ResNet18
from fedaudit.fl.training import ghosts
from fedaudit.fl.training.local import Params


class Small(Net):
    """A convolution, a norm of groups, and 16 features; `twice` uses the dense layer a second time."""

    source = "a test"

    def __init__(self, twice: bool = False) -> None:
        super().__init__((2, 6, 6), 3)
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.fc, self.again, self.twice = nn.Linear(144, 16), nn.Linear(16, 16), twice
        self.head = nn.Linear(16, 3)

    def features(self, x: Tensor) -> Tensor:
        h = self.again(torch.relu(self.fc(self.norm(self.conv(x)).flatten(1))))
        return self.again(h) if self.twice else h


def clip_by_hand(net: Net, x: Tensor, y: Tensor, clip: float) -> Params:
    params, total = dict(net.named_parameters()), {k: torch.zeros_like(p) for k, p in net.named_parameters()}
    for i in range(len(y)):
        grads = torch.autograd.grad(net.loss(x[i : i + 1], y[i : i + 1]), list(params.values()))
        norm = torch.sqrt(sum((g.square().sum() for g in grads), torch.zeros(())))
        if not torch.isfinite(norm):
            continue
        for k, g in zip(params, grads, strict=True):
            total[k] += g * min(1.0, clip / float(norm + 1e-6))
    return total


def batch(shape: tuple[int, ...], classes: int, size: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(size, *shape, generator=rng) * torch.linspace(0.01, 3, size).view(-1, *(1 for _ in shape))
    return x, torch.arange(size) % classes


def distance(a: Params, b: Params) -> float:
    return float(torch.sqrt(sum(((a[k] - b[k]).square().sum() for k in a), torch.zeros(()).double())))


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_a_sum_is_that_of_clipped_gradients(clip: float) -> None:
    torch.manual_seed(0)
    net, (x, y) = Small().double(), batch((2, 6, 6), 3, 5)
    found, losses = ghosts.sum_clipped(net, dict(net.named_parameters()), x.double(), y, clip)
    assert (
        distance(found, clip_by_hand(net, x.double(), y, clip)) < 1e-5 * clip
    )  # of single precision in the norms
    assert losses.shape == (5,) and not losses.requires_grad
    assert all(p.grad is None and not hasattr(p, "_norm_sample") for p in net.parameters())


def test_an_example_whose_gradient_is_not_finite_counts_as_nothing() -> None:
    torch.manual_seed(0)
    net, (x, y) = Small(), batch((2, 6, 6), 3, 4)
    x[2] = torch.inf
    found, _ = ghosts.sum_clipped(net, dict(net.named_parameters()), x, y, 1.0)
    rest = torch.tensor([0, 1, 3])
    assert distance(found, clip_by_hand(net, x[rest], y[rest], 1.0)) < 1e-5
    nothing, _ = ghosts.sum_clipped(net, dict(net.named_parameters()), x[2:3], y[2:3], 1.0)
    assert not any(v.any() for v in nothing.values())


@pytest.mark.nightly
def test_resnet_18_is_clipped_within_a_ten_thousandth_of_the_clip_for_each_example() -> None:
    torch.manual_seed(0)
    net, (x, y) = ResNet18((3, 16, 16), 10), batch((3, 16, 16), 10, 3)
    params = dict(net.named_parameters())
    assert ghosts.fits(FedAvg.__new__(FedAvg), net, params, x)
    found, _ = ghosts.sum_clipped(net, params, x, y, 1.0)
    assert distance(found, clip_by_hand(net, x, y, 1.0)) < 3e-4


def test_small_networks_penalties_and_layers_that_are_used_twice_take_each_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fits(method: type, net: Net) -> bool:
        made: Any = method.__new__(method)
        return ghosts.fits(made, net, dict(net.named_parameters()), torch.ones(2, 2, 6, 6))

    assert not fits(FedAvg, Small())
    monkeypatch.setattr(ghosts, "LEAST", 1)
    assert fits(FedAvg, Small())
    assert not fits(MOON, Small()) and not fits(FedAvg, Small(twice=True))
