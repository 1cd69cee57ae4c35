"""Sorting the uploads of every column at once, by a network of comparisons between whole rows.

Batcher. Sorting networks and their applications. AFIPS 1968 (Knuth, vol. 3, algorithm 5.2.2M): which two rows are
compared next does not depend on the numbers, so a comparison is one minimum and one maximum over all columns.
Comparisons that no wanted row depends on are left out.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.floating[Any]]  # [n, columns], a copy that work may change


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


def ordered(block: Block, wanted: Sequence[int]) -> list[Block]:
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
    found = ordered(block, sorted({(n - 1) // 2, n // 2}))
    centre: Block = (found[0].astype(np.float64) + found[-1]) / 2
    return centre


def total(rows: Sequence[Block]) -> Block:
    """[columns] the sum of rows, in double precision, in their order."""
    found: Block = rows[0].astype(np.float64)
    for row in rows[1:]:
        found += row
    return found
