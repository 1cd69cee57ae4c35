"""Work on uploads by blocks of columns, side by side, in double precision.

Blocks have a fixed size and results their place, so that no bit depends on the number of threads. Torch and numpy
let go of the interpreter while they compute.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.aggregators._sorted import Block, middle
from fedaudit.fl.runtime.machine import cores

T = TypeVar("T")
BLOCK = 1 << 14  # columns; with 100 rows a few megabytes
FEW = 64  # fewer blocks are done before a second thread has begun
NARROW = 1 << 12  # columns that are sorted together: they stay near the core


def in_blocks(work: Callable[[slice], T], columns: int, size: int = BLOCK) -> list[T]:
    """work(columns of a block) of every block, in their order."""
    blocks = [slice(start, min(start + size, columns)) for start in range(0, columns, size)]
    if len(blocks) < FEW:
        return [work(b) for b in blocks]
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(work, blocks))


def by_columns(rows: Tensor, work: Callable[[Block], Block]) -> Tensor:
    """work([n, columns]) -> [columns], of all columns of rows [n, P]; gives [P] float64."""
    array, out = rows.numpy(), np.empty(rows.shape[1])

    def block(columns: slice) -> None:
        out[columns] = work(array[:, columns].copy())

    in_blocks(block, rows.shape[1], NARROW)
    return torch.from_numpy(out)


def median(rows: Tensor) -> Tensor:
    """[n, P] float32 -> [P] float64."""
    return by_columns(rows, middle)


def weighted(rows: Tensor, weights: Tensor) -> Tensor:
    """[n, P] float32, [n] -> [P] float64: the weighted sum."""
    out = torch.empty(rows.shape[1], dtype=torch.float64)

    def block(columns: slice) -> None:
        out[columns] = weights.double() @ rows[:, columns].double()

    in_blocks(block, rows.shape[1])
    return out


def mean_of(rows: Tensor, chosen: list[int]) -> Tensor:
    """[n, P] float32 -> [P] float64: the plain mean of some rows."""
    weights = torch.zeros(len(rows), dtype=torch.float64)
    weights[chosen] = 1.0
    return weighted(rows, weights) / len(chosen)


def mixed(rows: Tensor, shares: Tensor) -> Tensor:
    """[n, P] float32, [m, n] float64 -> [m, P] float32: rows that are weighted sums of rows."""
    out = torch.empty(len(shares), rows.shape[1])

    def block(columns: slice) -> None:
        out[:, columns] = (shares @ rows[:, columns].double()).float()

    in_blocks(block, rows.shape[1])
    return out
