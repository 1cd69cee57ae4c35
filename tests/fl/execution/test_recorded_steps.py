"""A step that is repeated from a recording is the step, whatever rows and batches it meets; no GPU is needed."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from fedaudit.fl.execution.recorded_steps import Step

ROWS = [[0, 1, 2], [0, 1, 2], [1, 2], [0, 1, 2], [2], [1, 2], [1, 2], [0, 1, 2]]


class Rows:
    """Weights that a step moves by a mean of its batch."""

    def __init__(self) -> None:
        self.weights, self.calls = torch.zeros(3), 0

    def advance(self, rows: Tensor, x: Tensor) -> None:
        self.calls += 1
        self.weights[rows] = 0.9 * self.weights[rows] + x.mean(1)


def pretend(step: Callable[..., None], read: Sequence[Tensor]) -> Callable[[], None]:
    """As CUDA does: recording runs nothing, and a replay reads the same tensors again."""
    return lambda: step(*read)


def refuse(step: Callable[..., None], read: Sequence[Tensor]) -> Callable[[], None]:
    raise RuntimeError("operation not permitted when stream is capturing")


def train(record: Callable[..., Callable[[], None]] | None) -> Tensor:
    rows, rng = Rows(), torch.Generator().manual_seed(1)
    step = Step(rows.advance, "cpu", record)
    for number, chosen in enumerate(ROWS):
        size = 5 if number == 3 else 4
        step(chosen, torch.rand(len(chosen), size, generator=rng))
    assert rows.calls == len(ROWS)
    return rows.weights


@pytest.mark.parametrize("record", [pretend, refuse])
def test_recorded_steps_are_the_steps(record: Callable[..., Callable[[], None]]) -> None:
    assert torch.equal(train(record), train(None))


def test_a_step_is_recorded_when_it_comes_again_with_the_same_rows_and_shapes() -> None:
    made: list[list[int]] = []

    def record(step: Callable[..., None], read: Sequence[Tensor]) -> Callable[[], None]:
        made.append(read[0].tolist())
        return pretend(step, read)

    train(record)
    assert made == [[0, 1, 2], [1, 2]]


def test_what_cannot_be_recorded_is_tried_once() -> None:
    tried: list[int] = []

    def record(step: Callable[..., None], read: Sequence[Tensor]) -> Callable[[], None]:
        tried.append(1)
        return refuse(step, read)

    train(record)
    assert len(tried) == 1
