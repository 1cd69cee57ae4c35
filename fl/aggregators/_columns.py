"""Rules that look at one coordinate after the other: blocks of columns, side by side, in double precision.

Blocks have a fixed size and results their place, so that no bit depends on the number of threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.floating]
BLOCK = 1 << 14  # columns; with 100 rows a few megabytes


def by_columns(rows: Tensor, work: Callable[[Floats], NDArray[np.float64]]) -> Tensor:
    """work([columns, n]) -> [columns], on blocks of rows [n, P] turned round; gives [P], float64."""
    array, out = rows.numpy(), np.empty(rows.shape[1])

    def block(start: int) -> None:
        stop = start + BLOCK
        out[start:stop] = work(np.ascontiguousarray(array[:, start:stop].T))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(block, range(0, rows.shape[1], BLOCK)))
    return torch.from_numpy(out)


def middle(block: Floats) -> NDArray[np.float64]:
    """[columns, n] -> the median of each."""
    n = block.shape[1]
    low, high = (n - 1) // 2, n // 2
    block.partition((low, high), axis=1)
    found: NDArray[np.float64] = (block[:, low].astype(np.float64) + block[:, high]) / 2
    return found


def median(rows: Tensor) -> Tensor:
    """[n, P] float32 -> [P] float64; the mean of the two middle ones where n is even."""
    return by_columns(rows, middle)
