"""Networks whose weights have several names: one layer used twice, one weight of two layers."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Adapted, Net, state_of
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.shared_weights import SharedNames, find_shared_names
from fedaudit.fl.training.local import Handle, bind
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, TinyNet, data, parts, run

NAMES = [n for n in plugin.names("fedaudit.fl.methods") if "lora" not in n]
WITHOUT_A_PART = ("split", "hetero", "fjord", "sflg", "freeze")  # methods that cut the network into its layers


class Tied(nn.Module):
    """`twice` is `first` by another name, and the second layer has the first one's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.first, self.second = nn.Linear(36, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.twice, self.second.weight = self.first, self.first.weight
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(self.enter(x.flatten(1)).relu()).relu()
        out: Tensor = self.last(self.second(self.twice(h).relu()))
        return out


def make() -> Net:
    return Adapted(Tied())


def test_names_of_the_same_weights_are_known() -> None:
    others, places = make().shared_names
    assert others == {"twice.weight": "first.weight", "twice.bias": "first.bias", "second.weight": "first.weight"}
    assert places == {"second.weight": "first.weight"}  # `twice` is the same module
    assert TinyNet().shared_names == find_shared_names(TinyNet()) == SharedNames()


def test_a_state_gives_the_network_that_it_is_of() -> None:
    net, other, x = make(), make(), torch.rand(3, 1, 6, 6)
    state = state_of(net)
    assert {"twice.weight", "second.weight"} <= state.keys()  # as torch's own
    for put in (lambda: bind(other, state), lambda: other.load_state_dict(state)):
        for p in other.parameters():
            nn.init.zeros_(p)
        put()
        assert torch.equal(other(x), net(x))
    assert torch.equal(Handle(other, state)(x), net(x))


def test_the_first_name_decides_where_values_differ() -> None:
    net = make()
    state = state_of(net) | {"twice.weight": torch.zeros(8, 8), "second.weight": torch.ones(8, 8)}
    before = net.first.weight.detach().clone()  # type: ignore[union-attr]
    bind(net, state)
    net.load_state_dict(state)
    assert torch.equal(net.first.weight, before)  # type: ignore[union-attr, arg-type]


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(WITHOUT_A_PART)])
def test_every_method_trains_them(name: str) -> None:
    index = parts(data(n=80), skew=False)  # the last examples are the server's
    result = run(method(name), make=make, script=EVERYONE, d=data(n=100), index=index)
    assert all(torch.isfinite(v).all() for v in result.model.values())


def test_equal_weights_are_sent_with_equal_values(tmp_path: Path) -> None:
    result = run(method("fedavg"), make=make, script=EVERYONE, folder=tmp_path)
    sent = [a.payload for a in result.artifacts if a.kind == Kind.LOCAL_MODEL]
    assert sent and all((p["first.weight"] == p["twice.weight"]).all() for p in sent)
    assert all((p["first.weight"] == p["second.weight"]).all() for p in sent)


@pytest.mark.parametrize("workers", [0, "batched"])
def test_a_stack_trains_them_as_one_by_one(workers: int | str) -> None:
    here, there = (run(method("fedavg"), make=make, script=EVERYONE, workers=w) for w in (0, workers))
    assert all(torch.allclose(here.model[k], there.model[k], atol=1e-5) for k in here.model)
