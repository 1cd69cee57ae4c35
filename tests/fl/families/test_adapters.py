"""Adapters: a model with new ones is its base, bit for bit; what is trained and sent is theirs alone."""

import pytest
import torch
from torch import nn

from fedaudit.fl.families.adapters import attach, compute_products, list_factors
from fedaudit.fl.model import Net, adapt, initialise, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import load
from fedaudit.fl.runtime.settings import check_settings
from fedaudit.fl.runtime.streams import Streams
from tests.fl.worlds import TinyNet, adapted


def gpt(**settings: object) -> Net:
    cls = load("fedaudit.fl.models", "tiny_gpt", Net)
    given = {"dim": 16, "heads": 2, "vocabulary": 30, "task": "lm"} | settings
    return initialise(lambda: cls((12,), 3, check_settings(cls.Config, given, "model")), Streams(4))


def tokens(n: int = 5) -> torch.Tensor:
    return torch.randint(1, 30, (n, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_with_new_adapters_is_its_base_and_one_with_others_is_not(tied: bool) -> None:
    net = attach(gpt(tied=tied), 3, 6.0, ["q", "v"])
    with torch.no_grad():
        assert torch.equal(net(tokens()), gpt(tied=tied)(tokens()))
        net.get_submodule("blocks.1.v").lora_B.weight.fill_(0.1)
        assert not torch.allclose(net(tokens()), gpt(tied=tied)(tokens()), atol=1e-3)


def test_only_the_adapters_are_parameters_and_in_the_state_under_the_names_of_peft() -> None:
    net = attach(gpt(), 3, 6.0, ["q", "v"])
    layers = [f"blocks.{i}.{part}" for i in (0, 1) for part in ("q", "v")]
    names = [f"{layer}.lora_{factor}.weight" for layer in layers for factor in "AB"]
    assert list(net.state_dict()) == names == [name for name, _ in net.named_parameters()]
    assert [(f.layer, tuple(f.a.shape), tuple(f.b.shape)) for f in list_factors(net.state_dict())] == [
        (layer, (3, 16), (16, 3)) for layer in layers
    ]


def test_a_layer_is_x_w_plus_alpha_over_rank_times_x_a_b_by_hand() -> None:
    base = nn.Linear(2, 1)
    with torch.no_grad():
        base.weight.copy_(torch.tensor([[1.0, 2.0]]))
        base.bias.fill_(0.5)
    net = attach(adapt(nn.Sequential(base)), 1, 3.0, ["0"])
    layer = (
        net.get_submodule("0") if hasattr(net, "0") else next(m for m in net.modules() if hasattr(m, "lora_A"))
    )
    with torch.no_grad():
        layer.lora_A.weight.copy_(torch.tensor([[1.0, -1.0]]))  # type: ignore[union-attr]
        layer.lora_B.weight.fill_(2.0)  # type: ignore[union-attr]
        # 1*3 + 2*5 + .5 = 13.5, and 3/1 * (3 - 5) * 2 = -12
        assert net(torch.tensor([[3.0, 5.0]])).item() == 1.5
    assert compute_products(net.state_dict())["0"].tolist() == [[2.0, -2.0]]


def test_first_factors_are_of_the_stated_width_and_everybodys_are_the_same() -> None:
    one, two, other = (attach(gpt(dim=128), 64, 64.0, ["up"], seed=s).state_dict() for s in (1, 1, 2))
    name = "blocks.0.up.lora_A.weight"
    assert torch.equal(one[name], two[name]) and not torch.equal(one[name], other[name])
    assert one[name].std().item() == pytest.approx(128**-0.5, rel=0.05)
    assert not one["blocks.0.up.lora_B.weight"].any()


def test_modules_named_in_full_are_trained_as_they_are() -> None:
    names = set(state_of(adapted()))
    assert names == {"fc.lora_A.weight", "fc.lora_B.weight", "head.weight", "head.bias"}
    assert "conv.weight" in dict(adapted().named_buffers())


def test_names_that_no_layer_has_and_norms_of_batches_are_refused() -> None:
    with pytest.raises(UserError, match="no linear layer of that name") as error:
        attach(gpt(), 2, 4.0, ["query"])
    assert "q" in error.value.hint and error.value.key == "federation.adapters.targets"
    with pytest.raises(UserError, match="both name 'head'"):
        attach(initialise(TinyNet, Streams(1)), 2, 4.0, ["head"], ["head"])
    with pytest.raises(UserError, match="batch normalisation"):
        attach(adapt(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))), 2, 4.0, ["1"])
