"""Arrays of a message laid out in one line, in every order in which rows may stand in them, and sorted once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Flat:
    """Numbers of one type, array after array in each of its orders, NaN between them."""

    dtype: np.dtype[Any]
    values: Values
    begins: Numbers  # of each order of each array
    steps: Numbers  # between rows there, where an array has rows
    width: int  # F

    @cached_property
    def order(self) -> Numbers:
        """Places of the numbers from the least on, NaN at the end."""
        return np.argsort(self.values, kind="stable")

    @cached_property
    def ordered(self) -> Values:
        return self.values[self.order]


def lay_out(arrays: Iterable[NDArray[Any]], width: int) -> Iterator[Flat]:
    parts: dict[np.dtype[Any], list[NDArray[Any]]] = {}
    for array in arrays:
        if _is_read(array, width):
            parts.setdefault(array.dtype.newbyteorder("="), []).extend(_list_orders(array, width))
    gap = np.full(1, np.nan)
    for dtype, orders in parts.items():
        with np.errstate(invalid="ignore"):  # what bytes spell may be no number
            pieces = [np.concatenate([np.asarray(v, np.float64).ravel(), gap]) for v in orders]
        begins = np.concatenate([[0], np.cumsum([len(p) for p in pieces])[:-1]])
        steps = np.array([v.shape[-1] if v.ndim > 1 else 0 for v in orders])
        values = np.concatenate(pieces)
        values[~np.isfinite(values)] = np.nan
        yield Flat(dtype, values, begins, steps, width)


def _is_read(array: NDArray[Any], width: int) -> bool:
    return array.dtype.kind in "fiu" and array.size >= width


def _list_orders(array: NDArray[Any], width: int) -> Iterator[NDArray[Any]]:
    """An array in C and in F order, and a flat one by columns."""
    yield array
    if array.ndim > 1 and min(array.shape) > 1:
        yield array.T
    elif max(array.shape, default=0) == array.size:
        for columns in (width, width + 1):
            if array.size % columns == 0 and array.size > columns:
                yield array.reshape(columns, -1).T


def count_windows(arrays: Iterable[NDArray[Any]], width: int) -> int:
    """Places at which rows of so many numbers may begin, in every order and both ways."""
    orders = (v for a in arrays if _is_read(a, width) for v in _list_orders(a, width))
    return 2 * sum(v.size - width + 1 for v in orders)
