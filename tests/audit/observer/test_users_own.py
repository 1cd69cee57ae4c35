"""Networks of users run as they are, whatever their last layer is."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.datasets.digits import Digits
from fedaudit.fl.model import adapt, head_names, state_of
from fedaudit.fl.runtime.errors import UserError


class FullyConvolutional(nn.Module):
    """A score of each class at each place, and their mean: no nn.Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Conv2d(1, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x).mean((2, 3))


class Scaled(nn.Module):
    """What the last nn.Linear gives is not what the network gives."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1)) / 7


DATA = dataclasses.replace(Digits(Digits.Config()).load(), mean=(0.0,), std=(1.0,))


@pytest.mark.parametrize("network", [FullyConvolutional, Scaled])
def test_an_adversary_reads_the_outputs_of_the_whole_network(network: type[nn.Module]) -> None:
    inner = network()
    run = KnownArchitecture(lambda: adapt(network()), DATA)({n: v.numpy() for n, v in state_of(inner).items()})
    x = DATA.test.x[:5]
    np.testing.assert_allclose(run.logits(x), inner(torch.from_numpy(x)).detach().numpy(), atol=1e-6)


def test_a_network_without_a_linear_layer_has_no_head_and_says_so_where_one_is_needed() -> None:
    net = adapt(FullyConvolutional())
    assert head_names(net) == () and head_names(adapt(Scaled())) == ("linear.weight", "linear.bias")
    with pytest.raises(UserError, match="FullyConvolutional has no"):
        net.features(torch.zeros(1, 1, 8, 8))
