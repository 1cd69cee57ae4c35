"""Splitting whole numbers by shares, and classes among those who hold them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne

Cycled = AtLeastOne | tuple[AtLeastOne, ...] | None
CYCLED = Field(
    default=None,
    description="examples of each client; a list is repeated over the clients, null splits all equally",
)  # the setting examples_per_client, which `sizes` reads


def largest_remainder(total: int, shares: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """`total` split in proportion to non-negative `shares` [n]: whole numbers that sum to it exactly.

    Everybody gets their quota rounded down; what is left goes, one each, to the largest remainders,
    equal ones in random order.
    """
    quota = total * (shares / shares.sum())
    counts = np.floor(quota).astype(np.int64)
    order = np.lexsort((rng.random(len(shares)), -(quota - counts).round(9)))
    counts[order[: total - int(counts.sum())]] += 1
    result: NDArray[np.int64] = counts
    return result


def pools(labels: NDArray[np.int64], classes: int, rng: np.random.Generator) -> list[Index]:
    """The examples of each class, in random order."""
    return [rng.permutation(np.flatnonzero(labels == c)).astype(np.int64) for c in range(classes)]


def by_shares(labels: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator) -> list[Index]:
    """Every class cut among the clients by its column of `shares` [clients, classes]."""
    given: list[list[Index]] = [[] for _ in shares]
    for pool, column in zip(pools(labels, shares.shape[1], rng), shares.T, strict=True):
        cuts = np.cumsum(largest_remainder(len(pool), column, rng))[:-1]
        for mine, piece in zip(given, np.split(pool, cuts), strict=True):
            mine.append(piece)
    return collect(given)


def collect(given: Sequence[Sequence[Index]]) -> list[Index]:
    """Each client's pieces as one ascending array."""
    empty = np.empty(0, dtype=np.int64)
    return [np.sort(np.concatenate([empty, *pieces])) for pieces in given]


def sizes(wanted: int | Sequence[int] | None, examples: int, clients: int) -> list[int]:
    """Examples a client: one number for all, a list cycled over them, or an equal split."""
    if wanted is None:
        wanted = examples // clients
    cycle = [wanted] if isinstance(wanted, int) else list(wanted)
    if min(cycle, default=0) < 1:
        raise UserError(
            f"examples_per_client must be >= 1, got {min(cycle, default=0)} "
            f"({examples} examples, {clients} clients)",
            hint="use fewer clients, or list what each should hold",
        )
    return [cycle[k % len(cycle)] for k in range(clients)]
