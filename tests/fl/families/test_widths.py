"""Narrow networks inside wide ones: how large they are, and that nothing outside has a say."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedaudit.fl.families.widths import Widths, masks, tiers
from fedaudit.fl.model import Net
from fedaudit.fl.models.cnns import CnnW, FemnistCNN
from fedaudit.fl.models.resnet18 import ResNet18
from fedaudit.fl.models.rnns import ShakespeareRNN
from fedaudit.fl.runtime.errors import UserError

FOUR = (0.25, 0.5, 0.75, 1.0)


def test_the_cnn_has_the_published_weights_at_four_widths() -> None:
    slices = Widths.from_shares(FemnistCNN((1, 28, 28), 62), FOUR)
    assert [slices.values(i) for i in range(4)] == [286_110, 1_111_038, 2_474_846, 4_377_534]


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: CnnW((1, 28, 28), 10), torch.rand(3, 1, 28, 28)),
        (lambda: ShakespeareRNN((6,), 20), torch.arange(18).reshape(3, 6)),
    ],
    ids=["cnn_w", "shakespeare_rnn"],
)
@pytest.mark.parametrize("share", [0.25, 0.5])
def test_units_beyond_the_width_have_no_say_and_no_gradient(
    make: Callable[[], Net], x: torch.Tensor, share: float
) -> None:
    net = make()
    own = masks(net, share)
    before = {k: p.detach().clone() for k, p in net.named_parameters()}

    def narrow(outside: float) -> torch.Tensor:
        changed = {k: torch.where(own[k], p, outside) for k, p in before.items()}
        cut = {k: p * own[k] for k, p in changed.items()}
        return torch.func.functional_call(net, cut, (x,))

    assert torch.equal(narrow(0.0), narrow(7.0)) and not torch.equal(narrow(0.0), net(x))
    with torch.no_grad():
        for k, p in net.named_parameters():
            p.copy_(before[k] * own[k])
    net(x).square().sum().backward()
    for k, p in net.named_parameters():
        assert p.grad is not None and not p.grad[~own[k]].any() and p.grad[own[k]].any()
        p.grad = None


def test_a_small_network_cut_by_hand_gives_the_same_outputs() -> None:
    wide, small = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Linear(3, 2)
    last = nn.Linear(2, 2)
    own = masks(wide, 0.5)
    with torch.no_grad():
        small.weight.copy_(wide[0].weight[:2])
        small.bias.copy_(wide[0].bias[:2])
        last.weight.copy_(wide[2].weight[:, :2])
        last.bias.copy_(wide[2].bias)
    x = torch.rand(5, 3)
    cut = {k: p * own[k] for k, p in wide.named_parameters()}
    assert torch.allclose(torch.func.functional_call(wide, cut, (x,)), last(torch.relu(small(x))))


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(UserError, match="statistics differ with the width"):
        masks(ResNet18((3, 8, 8), 10), 0.5)
    with pytest.raises(UserError, match="several layers or directions"):
        masks(nn.Sequential(nn.LSTM(4, 4, num_layers=2)), 0.5)


def test_tiers_are_equal_groups_from_the_slowest() -> None:
    assert tiers([3.0, 0.5, 1.0, 2.0], 4) == [3, 0, 1, 2]
    assert tiers([1.0] * 5, 2) == [0, 0, 0, 1, 1]
