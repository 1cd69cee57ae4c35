"""Lengths of uploads and distances between them, from inner products in double precision, and Krum's scores."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fedaudit.fl.aggregators._columns import in_blocks

BLOCK = 1 << 12  # columns, which a core keeps near it; sums are made in one order, whatever the threads


def gram(rows: Tensor, centre: Tensor | None = None) -> Tensor:
    """[n, P] float32 -> [n, n] float64: inner products of the rows, less `centre` [P] where there is one."""

    def block(columns: slice) -> Tensor:
        part = rows[:, columns].numpy().astype(np.float64)
        if centre is not None:
            part -= centre[columns].double().numpy()
        return torch.from_numpy(part @ part.T)  # numpy computes one half, the other is the same

    with blas().limit(limits=1):  # blocks are side by side already, and a bit may depend on its threads
        return _summed(block, rows.shape[1])


@cache
def blas() -> ThreadpoolController:
    """The library that numpy multiplies with."""
    return ThreadpoolController().select(user_api="blas")


def along(rows: Tensor, direction: Tensor) -> Tensor:
    """[n, P], [P] -> [n] float64: inner products with one direction."""
    return _summed(lambda columns: rows[:, columns].double() @ direction[columns].double(), rows.shape[1])


def lengths(rows: Tensor, centre: Tensor | None = None) -> Tensor:
    """[n, P] -> [n] float64: norms, or distances to `centre` [P]."""

    def block(columns: slice) -> Tensor:
        part = rows[:, columns].double()
        return (part if centre is None else part - centre[columns].double()).square().sum(1)

    return _summed(block, rows.shape[1]).sqrt()


def factors(rows: Tensor, norm: float | None) -> Tensor:
    """[n]: what brings each of rows [n, P] to at most `norm`, or without one to the rows' median norm."""
    long = lengths(rows)
    bound = float(long.quantile(0.5)) if norm is None else norm
    return torch.where(long > bound, bound / long.clamp(min=1e-300), 1.0)


def squared(rows: Tensor) -> Tensor:
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


def _summed(block: Callable[[slice], Tensor], columns: int) -> Tensor:
    found = in_blocks(block, columns, BLOCK)
    total = found[0].clone()
    for part in found[1:]:
        total += part
    return total
