"""Arithmetic on uploads, the rows of a matrix [n, P]: by blocks of columns, side by side, in double precision.

Blocks have a fixed size and results their place, so that no bit depends on the number of threads. Torch and numpy
let go of the interpreter while they compute. Lengths and distances come from inner products.

Rows are sorted in every column at once, by a network of comparisons between whole rows. Batcher. Sorting networks
and their applications. AFIPS 1968 (Knuth, vol. 3, algorithm 5.2.2M): which two rows are compared next does not
depend on the numbers, so a comparison is one minimum and one maximum over all columns. Comparisons that no wanted
row depends on are left out.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fedaudit.fl.runtime.machine import cores

Block = NDArray[np.floating[Any]]  # [n, columns], a copy that work may change

T = TypeVar("T")
BLOCK = 1 << 14  # columns; with 100 rows a few megabytes
FEW = 64  # fewer blocks are done before a second thread has begun
NARROW = 1 << 12  # columns that are sorted together: they stay near the core

NEAR = 1 << 12  # columns, which a core keeps near it; sums are made in one order, whatever the threads


@cache
def network(n: int, wanted: tuple[int, ...]) -> tuple[tuple[int, int, bool, bool], ...]:
    """(row, later row, whether the smaller is needed, whether the larger is) of each comparison, in order."""
    pairs = []
    p = 1
    while p < n:
        k = p
        while k:
            pairs += [
                (i + j, i + j + k)
                for j in range(k % p, n - k, 2 * k)
                for i in range(min(k, n - j - k))
                if (i + j) // (2 * p) == (i + j + k) // (2 * p)
            ]
            k //= 2
        p *= 2
    needed, kept = set(wanted), []
    for low, high in reversed(pairs):
        if low in needed or high in needed:
            kept.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return tuple(reversed(kept))


def select_ranks(block: Block, wanted: Sequence[int]) -> list[Block]:
    """The rows of these ranks, 0 the smallest of each column, each [columns]; NaN counts as the largest."""
    if np.isnan(block).any():  # which minimum and maximum would spread
        block.sort(axis=0)
        return [block[i] for i in wanted]
    rows, spare = list(block), np.empty_like(block[0])
    for low, high, smaller, larger in network(len(block), tuple(wanted)):
        a, b = rows[low], rows[high]
        if smaller and larger:
            np.minimum(a, b, out=spare)
            np.maximum(a, b, out=b)
            rows[low], spare = spare, a
        elif smaller:
            np.minimum(a, b, out=a)
        else:
            np.maximum(a, b, out=b)
    return [rows[i] for i in wanted]


def middle(block: Block) -> Block:
    """[n, columns] -> the median of each, the mean of the two middle ones where n is even."""
    n = len(block)
    found = select_ranks(block, sorted({(n - 1) // 2, n // 2}))
    centre: Block = (found[0].astype(np.float64) + found[-1]) / 2
    return centre


def total(rows: Sequence[Block]) -> Block:
    """[columns] the sum of rows, in double precision, in their order."""
    found: Block = rows[0].astype(np.float64)
    for row in rows[1:]:
        found += row
    return found


def nearest(block: Block, most: int) -> Block:
    """[m, columns] -> the mean of the `most` values of each column that are nearest to its median.

    In order of size these stand side by side, and the window moves up while that takes in a nearer value than it
    leaves out.
    """
    m = len(block)
    values = [row.astype(np.float64) for row in select_ranks(block.copy(), range(m))]
    twice = values[(m - 1) // 2] + values[m // 2]
    found, tied = total(values[:most]), np.zeros(block.shape[1], dtype=bool)
    for lowest, entering in zip(values, values[most:], strict=False):
        gain = twice - (lowest + entering)  # of distance to the median, were one replaced by the other
        found += (gain > 0) * (entering - lowest)
        tied |= (gain == 0) & (entering != lowest)
    found /= most
    if tied.any():  # of two values equally near the first chosen counts
        some = block[:, tied]
        order = np.abs(some - twice[tied] / 2).argsort(axis=0, kind="stable")[:most]
        found[tied] = np.take_along_axis(some, order, axis=0).mean(axis=0, dtype=np.float64)
    return found


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


def sum_weighted_rows(rows: Tensor, weights: Tensor) -> Tensor:
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
    return sum_weighted_rows(rows, weights) / len(chosen)


def mix_rows(rows: Tensor, shares: Tensor) -> Tensor:
    """[n, P] float32, [m, n] float64 -> [m, P] float32: rows that are weighted sums of rows."""
    out = torch.empty(len(shares), rows.shape[1])

    def block(columns: slice) -> None:
        out[:, columns] = (shares @ rows[:, columns].double()).float()

    in_blocks(block, rows.shape[1])
    return out


def gram(rows: Tensor, centre: Tensor | None = None) -> Tensor:
    """[n, P] float32 -> [n, n] float64: inner products of the rows, less `centre` [P] where there is one."""

    def block(columns: slice) -> Tensor:
        part = rows[:, columns].numpy().astype(np.float64)
        if centre is not None:
            part -= centre[columns].double().numpy()
        return torch.from_numpy(part @ part.T)  # numpy computes one half, the other is the same

    with blas().limit(limits=1):  # blocks are side by side already, and a bit may depend on its threads
        return _sum_blocks(block, rows.shape[1])


@cache
def blas() -> ThreadpoolController:
    """The library that numpy multiplies with."""
    return ThreadpoolController().select(user_api="blas")


def project_rows(rows: Tensor, direction: Tensor) -> Tensor:
    """[n, P], [P] -> [n] float64: inner products with one direction."""
    return _sum_blocks(lambda columns: rows[:, columns].double() @ direction[columns].double(), rows.shape[1])


def lengths(rows: Tensor, centre: Tensor | None = None) -> Tensor:
    """[n, P] -> [n] float64: norms, or distances to `centre` [P]."""

    def block(columns: slice) -> Tensor:
        part = rows[:, columns].double()
        return (part if centre is None else part - centre[columns].double()).square().sum(1)

    return _sum_blocks(block, rows.shape[1]).sqrt()


def factors(rows: Tensor, norm: float | None) -> Tensor:
    """[n]: what brings each of rows [n, P] to at most `norm`, or without one to the rows' median norm."""
    long = lengths(rows)
    bound = float(long.quantile(0.5)) if norm is None else norm
    return torch.where(long > bound, bound / long.clamp(min=1e-300), 1.0)


def square_distances(rows: Tensor) -> Tensor:
    """[n, n] float64: squared distances, exactly 0 on the diagonal."""
    inner = gram(rows)
    own = inner.diagonal()
    found = (own[:, None] + own[None, :] - inner - inner.T).clamp(min=0)
    return found.fill_diagonal_(0)


def scores(distances: Tensor, f: int) -> Tensor:
    """Krum: of each, the sum of the n - f - 2 smallest squared distances to others. [n, n] -> [n]."""
    n = len(distances)
    others = distances.clone().fill_diagonal_(float("inf")).sort(1).values
    return others[:, : max(0, n - f - 2)].sum(1)


def _sum_blocks(block: Callable[[slice], Tensor], columns: int) -> Tensor:
    found = in_blocks(block, columns, NEAR)
    total = found[0].clone()
    for part in found[1:]:
        total += part
    return total
