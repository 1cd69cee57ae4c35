"""How an epoch is cut into batches: no example is alone where examples of a batch share statistics."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Method
from fedaudit.fl.methods.seol_kim import SeolKim
from fedaudit.fl.model import Adapted, Net
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.batches import find_smallest_batch, has_batch_statistics, split_into_batches
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, NormalisedNet, TinyNet, World, data, parts, run

SIZES = (9, 17, 25, 0, 33)  # with batches of 8 each has one example left over
NAMES = plugin.names("fedaudit.fl.methods")


def over(
    found: Method, make: type[Net] = NormalisedNet, workers: int | str = 0, folder: Path | None = None
) -> World:
    d = data(n=100)
    return run(
        found, folder=folder, workers=workers, script=EVERYONE, d=d, index=parts(d, SIZES, skew=False), make=make
    )


@pytest.mark.parametrize(
    ("examples", "size", "apart", "joined"),
    [
        (0, 8, [], []),
        (1, 8, [1], [1]),
        (8, 8, [8], [8]),
        (9, 8, [8, 1], [9]),
        (17, 8, [8, 8, 1], [8, 9]),
        (18, 8, [8, 8, 2], [8, 8, 2]),
        (3, 2, [2, 1], [3]),
        (3, 1, [1, 1, 1], [1, 1, 1]),  # as it was asked for
    ],
)
def test_a_last_batch_of_one_joins_the_one_before_it(
    examples: int, size: int, apart: list[int], joined: list[int]
) -> None:
    assert split_into_batches(examples, size) == apart
    assert split_into_batches(examples, size, joins=True) == joined


@pytest.mark.parametrize(
    ("net", "shared"),
    [
        (nn.BatchNorm1d(3), True),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm2d(2)), True),
        (nn.SyncBatchNorm(3), True),
        (nn.LazyBatchNorm1d(), True),
        (nn.BatchNorm1d(3, track_running_stats=False), True),
        (nn.GroupNorm(1, 3), False),
        (nn.InstanceNorm2d(3, track_running_stats=True), False),
        (nn.LayerNorm(3), False),
    ],
)
def test_batch_normalisation_alone_shares_statistics(net: nn.Module, shared: bool) -> None:
    assert has_batch_statistics(net) is shared


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", [n for n in NAMES if "lora" not in n])
def test_every_method_trains_clients_with_one_example_left_over(name: str) -> None:
    try:
        result = over(method(name))
    except UserError as refused:  # of networks with normalisation as such
        assert "BatchNorm1d" in refused.sentence
        return
    assert all(torch.isfinite(v).all() for v in result.model.values())


@pytest.mark.parametrize("workers", [0, 2, "batched"])
def test_the_batches_are_the_same_wherever_clients_train(workers: int | str) -> None:
    result, here = over(method("fedavg"), workers=workers), over(method("fedavg"))
    assert all(torch.allclose(result.model[k], here.model[k], atol=1e-5) for k in here.model)


def test_steps_are_those_of_the_batches_that_were_made(tmp_path: Path) -> None:
    steps = {}
    for make in (TinyNet, NormalisedNet):
        folder = tmp_path / make.__name__
        found = over(method("fednova", rounds=1), make, folder=folder)
        counts = [a.payload["steps"] for a in found.artifacts if a.kind == Kind.NUM_STEPS]
        steps[make] = sorted({int(c) for c in counts})
    assert steps == {TinyNet: [2, 3, 4, 5], NormalisedNet: [1, 2, 3, 4]}


def test_a_method_that_chooses_batches_of_one_takes_two() -> None:
    found: SeolKim = plugin.configure(SeolKim, {"rounds": 1, "updates": 100}, "method")
    assert all(torch.isfinite(v).all() for v in over(found).model.values())


def test_split_learning_sends_no_batch_of_one(tmp_path: Path) -> None:
    result = over(method("splitfed_v1", rounds=1), folder=tmp_path)
    sent = [len(a.payload["activations"]) for a in result.artifacts if a.kind == Kind.SMASHED]
    assert sorted(sent) == [8] * 6 + [9] * 4


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.norm(self.first(x.flatten(1))))
        return out


class OfImages(nn.Module):
    """Whose statistics are over positions too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.norm(self.first(x)).flatten(1))
        return out


def test_a_network_needs_two_examples_where_normalisation_is_over_them_alone() -> None:
    x = torch.zeros(1, 1, 6, 6)
    assert find_smallest_batch(Adapted(Own()), x) == 2
    assert find_smallest_batch(Adapted(OfImages()), x) == 1
    assert find_smallest_batch(TinyNet(), x) == 1


def test_a_network_that_fails_says_what_it_was_given() -> None:
    with pytest.raises(UserError, match=r"Own cannot compute \[1, 1, 6, 6\] float32 in training mode") as raised:
        Adapted(Own())(torch.zeros(1, 1, 6, 6))
    assert "Expected more than 1 value" in raised.value.sentence and "forward()" in raised.value.hint
