"""Searches side by side: L-BFGS in rows is torch's own, and a processor draws each search when it comes to it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedaudit.attacks.evaluation.searches import Measure, Search, Searching, choose_rows, open_weights
from fedaudit.attacks.evaluation.stacked_lbfgs import MOVES, StackedLBFGS
from fedaudit.attacks.updates.idlg import IDLG, descend
from fedaudit.fl.training.layout import channels_last

# One row each: where L-BFGS needs many moves, where it starts at a least value, and where it leaves all numbers
STARTS = [[-1.2, 1.0], [1.0, 1.0], [1e80, -1e80], [0.5, 2.0], [0.0, 0.0]]
SLOPES = torch.linspace(1, 30, 40, dtype=torch.float64)


def rosenbrock(x: Tensor) -> Tensor:
    return 100 * (x[:, 1] - x[:, 0] ** 2) ** 2 + (1 - x[:, 0]) ** 2


def quartic(x: Tensor) -> Tensor:
    return (x**4).sum(1) + x[:, 0] * x[:, 1]


def bowl(x: Tensor) -> Tensor:
    return (SLOPES * x.square()).sum(1) + (x**4).sum(1)


def shallow(x: Tensor) -> Tensor:
    return bowl(x) - (0.97 * SLOPES * x.square()).sum(1)


def follow(make: Callable[..., Any], start: Tensor, loss: Measure, rate: float, steps: int) -> Tensor:
    """[steps, k, n] where they lead."""
    x = start.clone().requires_grad_()
    optimiser, path = make([x], lr=rate), []

    def closure() -> Tensor:
        value = loss(x)
        (x.grad,) = torch.autograd.grad(value.sum(), [x])
        return value.detach()

    for _ in range(steps):
        optimiser.step(closure)
        path.append(x.detach().clone())
    return torch.stack(path)


def check_rows(starts: Tensor, loss: Measure, rate: float, steps: int, atol: float = 1e-8) -> Tensor:
    rows = follow(StackedLBFGS, starts, loss, rate, steps)
    for i in range(len(starts)):
        alone = follow(torch.optim.LBFGS, starts[i : i + 1], loss, rate, steps)
        torch.testing.assert_close(rows[:, i : i + 1], alone, rtol=1e-6, atol=atol, equal_nan=True)
    return rows


@pytest.mark.parametrize("loss", [rosenbrock, quartic])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_each_row_goes_where_torchs_own_takes_it(loss: Measure, rate: float) -> None:
    rows = check_rows(torch.tensor(STARTS, dtype=torch.float64), loss, rate, 4)
    assert rows[:, [0, 1, 3]].isfinite().all() and rows[-1, 2].isnan().all()


def test_a_row_whose_steps_end_early_goes_on_from_its_own_last_move() -> None:
    drawn = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn[1:] *= 1e-5  # of whose loss a move takes less than counts
    rows = check_rows(drawn, shallow, 0.3, 3, atol=1e-12)
    assert (rows[1, 1:] - rows[0, 1:]).abs().amax(1).min() > 1e-6


def test_a_row_that_left_all_numbers_stays_at_its_last_sound_value() -> None:
    """Though its loss be sound again: as of a search alone, which ends there."""
    start, asked = torch.tensor([[3.0, -2.0], [3.0, -2.0]]), list[int]()

    def loss(x: Tensor) -> Tensor:
        asked.append(1)
        spoiled = torch.tensor([torch.nan, 1.0]) if len(asked) <= MOVES else torch.ones(2)
        return x.square().sum(1) * spoiled

    (found,) = descend(IDLG.Config(iterations=4), [start.clone()], loss, stacked=True)
    assert torch.equal(found[0], start[0]) and found[1].abs().max() < 1e-3


def test_it_does_where_more_pairs_were_met_than_are_kept() -> None:
    drawn = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = check_rows(drawn, bowl, 0.02, 7)
    moved = (rows[1:] - rows[:-1]).abs().amax(2)
    assert moved.min() > 1e-6, moved  # in all of 140 moves


@dataclass(frozen=True, kw_only=True)
class Point(Search):
    number: int

    @property
    def kind(self) -> int:
        return 0


class Doubling(Searching[Point, float]):
    """Of a number; keeps what happened."""

    def __init__(self) -> None:
        self.met: list[str] = []

    def draw(self, number: int) -> Iterator[Point]:
        for i in range(number):
            self.met.append(f"drawn {i}")
            yield Point(start=[torch.tensor(float(i))], number=i)

    def imitate(self, search: Point, stackable: bool) -> float:
        self.met.append("stackable" if stackable else "imitated")
        return 2.0

    def read(self, search: Point, copy: float) -> list[Tensor]:
        return [torch.tensor(copy)]

    def list_measures(self, search: Point, copy: float) -> list[Measure]:
        return [lambda x, factor: factor * x]

    def descend(self, variables: Sequence[Tensor], measures: Sequence[Measure], stacked: bool) -> list[Tensor]:
        return [measures[0](*variables)]

    def finish(self, search: Point, found: Sequence[Tensor]) -> float:
        self.met.append(f"found {search.number}")
        return float(found[0])


def test_a_processor_draws_a_search_when_the_one_before_is_done_and_imitates_once() -> None:
    attack = Doubling()
    assert attack.search(attack.draw(3), "cpu") == [0, 2, 4]
    assert attack.met == ["drawn 0", "imitated", "found 0", "drawn 1", "found 1", "drawn 2", "found 2"]
    assert attack.search(attack.draw(0), "cpu") == []


def test_a_batch_has_a_row_for_each_search() -> None:
    attack = Doubling()
    assert attack._search_together([*attack.draw(3)], "cpu") == [0, 2, 4]
    assert "imitated" not in attack.met


class Normalising(Doubling):
    """Through a convolution that is normalised by groups, with weights in the layout of convolutions."""

    net = channels_last(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4)))

    def read(self, search: Point, copy: float) -> list[Tensor]:
        return [p.detach() for p in self.net.parameters()]

    def list_measures(self, search: Point, copy: float) -> list[Measure]:
        run = open_weights(self.net, [name for name, _ in self.net.named_parameters()])
        return [lambda x, *weights: run(x.expand(2, 3, 5, 5), *weights).abs().sum()]


def test_a_batch_is_normalised_by_groups() -> None:
    attack = Normalising()
    each = attack.search(attack.draw(3), "cpu")
    assert attack._search_together([*attack.draw(3)], "cpu") == pytest.approx(each, rel=1e-4)
    assert each[0] != each[1]


def test_rows_are_chosen_one_by_one_and_a_search_alone_as_a_whole() -> None:
    ones, zeros = [torch.ones(2, 3), torch.ones(2)], [torch.zeros(2, 3), torch.zeros(2)]
    wide, flat = choose_rows(torch.tensor([True, False]), ones, zeros)
    assert wide.tolist() == [[1, 1, 1], [0, 0, 0]] and flat.tolist() == [1, 0]
    assert [t.sum() for t in choose_rows(torch.tensor(False), ones, zeros)] == [0, 0]
