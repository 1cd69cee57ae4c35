"""Copies: rows of examples that stand among many numbers, at any place, scale, offset and sign.

A stretch of numbers is known by its neighbours' differences over their length, in few steps: what is copied with
another scale and offset keeps them. Stretches that look alike are found by hashing, whatever the number of
examples, and are then compared in full. It costs some 90 ns a number; 10 million take about a second.

A place is one example's where no other fits it nearly as well (CLEARLY, APART), but for copies of it. So what is
like all of them, as a mean is, or rows of a table with columns of other units are, is nobody's. Nor is one found
whose values have so few orders that chance puts them somewhere, as a row of a few ones among zeros.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.modality.images import to_rows

Floats = NDArray[np.floating[Any]]
Hashes = NDArray[np.uint32]
WINDOW = 12  # differences by which a stretch is known
STEPS = 32  # of a difference over the length of all
PROBES = 4  # stretches of each example that are looked for
MIDDLE = 512  # values of an example in which stretches are chosen first
LEAST = 4  # different steps in a stretch that is looked for; flat ground is everywhere
EXACT = 0.999  # correlation from which on a row is the example
CLEARLY = 100.0  # times the least of 1 - correlation squared, below which another fits as well
APART = 0.05  # of that measure, where another is another whatever the noise
SAME = 1e-6  # of that measure, up to which two examples are copies of each other
SURE = 7.0  # bits: a chance of one in a hundred
FLOOR = 1e-10  # of that measure: single precision
TINY = 1e-30  # length of differences that are none
CHUNK = 1 << 16
TABLE = 1 << 20
PAIRS = 1 << 12  # of stretches and examples that are compared at a time
MOST_PAIRS = 1 << 20  # that are listed at a time


class Copy(NamedTuple):
    """An example, and where among the numbers it begins."""

    example: int
    begin: int


def find_copies(numbers: Floats, *layouts: Floats) -> list[Copy]:
    """The first place of every example [n, ...] that stands among the numbers; none of fewer than 16 values.

    Several layouts are the same examples in as many orders of their values.
    """
    ways = [to_rows(np.ascontiguousarray(x, np.float32)) for x in layouts]
    n, d = ways[0].shape
    if not n or d < WINDOW + 4 or len(numbers) < d:
        return []
    parts = [_choose_probes(rows) for rows in ways]
    whose = np.concatenate([k * n + some for k, (some, _, _) in enumerate(parts)])
    starts, hashes = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    order = np.argsort(hashes, kind="stable")
    whose, starts, hashes = whose[order], starts[order], hashes[order]
    table = np.zeros(TABLE, bool)
    table[hashes % np.uint32(TABLE)] = True
    found: dict[int, int] = {}
    values = np.ascontiguousarray(numbers, np.float32)
    known: dict[int, NDArray[np.float64]] = {}
    for begin in range(0, len(values) - WINDOW, CHUNK):
        marks = _hash(values[begin : begin + CHUNK + WINDOW])
        (near,) = np.nonzero(table[marks % np.uint32(TABLE)])
        first, last = (np.searchsorted(hashes, marks[near], side=side) for side in ("left", "right"))
        for some in np.array_split(np.arange(len(near)), 1 + int((last - first).sum()) // MOST_PAIRS):
            several = (last - first)[some]
            probe = np.arange(several.sum()) + np.repeat(first[some] - np.cumsum(several) + several, several)
            at, row = begin + np.repeat(near[some], several) - starts[probe], whose[probe]
            is_open = (at >= 0) & (at + d <= len(values)) & ~np.isin(row % n, list(found))
            for place, way in _list_places(values, at[is_open], row[is_open], ways):
                if way not in known:
                    known[way] = _standardise(ways[way])
                for example in _find_owners(values[place : place + d], known[way]):
                    if _count_orders(ways[way][example]) >= count_chances(len(values), n):
                        found.setdefault(example, place)
    return [Copy(*pair) for pair in sorted(found.items())]


def count_chances(places: int, examples: int) -> float:
    """Bits that an example must tell, so that any stands at any place by chance once in a hundred messages."""
    return float(np.log2(places) + np.log2(examples) + SURE)


def _count_orders(row: NDArray[np.float32]) -> float:
    """log2 of how many orders the values of a row [d] have: by how much it is told from others at any scale."""
    _, times = np.unique(row, return_counts=True)
    logs = scipy.special.gammaln(np.concatenate([[len(row)], times]) + 1.0)
    return float((logs[0] - logs[1:].sum()) / np.log(2))


def _choose_probes(rows: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64], Hashes]:
    """Example, place in it and hash of the stretches that are looked for, those of the most different steps.

    They are taken from the middle of long rows, and from anywhere in rows that are flat there.
    """
    edge = max(0, (rows.shape[1] - MIDDLE) // 2)
    whose, starts, hashes = _choose_within(rows[:, edge : rows.shape[1] - edge])
    rest = np.setdiff1d(np.arange(len(rows)), whose) if edge else whose[:0]
    some, others, more = _choose_within(rows[rest])
    return (
        np.concatenate([whose, rest[some]]),
        np.concatenate([starts + edge, others]),
        np.concatenate([hashes, more]),
    )


def _choose_within(rows: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64], Hashes]:
    hashes = _hash(rows)
    different = reduce(np.add, ((steps > 1).astype(np.int64) for steps in _measure_steps(rows)))
    starts = np.argsort(-different, axis=1, kind="stable")[:, :PROBES]
    whose = np.broadcast_to(np.arange(len(rows))[:, None], starts.shape)
    chosen = different[whose, starts] >= LEAST
    return whose[chosen], starts[chosen], hashes[whose, starts][chosen]


def _measure_steps(values: NDArray[np.float32]) -> Iterator[NDArray[np.int32]]:
    """Of every stretch of WINDOW + 1 values [..., d] its differences, one after the other, over their length."""
    gaps = np.abs(np.diff(values))
    count = gaps.shape[-1] - WINDOW + 1
    squares = np.square(gaps, dtype=np.float64)
    length = squares[
        ..., :count
    ].copy()  # window by window: beside a large number the running sum has no digits left
    for j in range(1, WINDOW):
        length += squares[..., j : j + count]
    np.sqrt(length, out=length)
    scale = np.divide(STEPS, length, out=np.zeros(length.shape), where=length > TINY).astype(np.float32)
    for j in range(WINDOW):
        yield np.rint(gaps[..., j : j + count] * scale).astype(np.int32)


def _hash(values: NDArray[np.float32]) -> Hashes:
    """Of every stretch of WINDOW + 1 values [..., d] its hash."""
    marks = np.zeros((*values.shape[:-1], values.shape[-1] - WINDOW), np.uint32)
    for steps in _measure_steps(values):
        marks += steps.view(np.uint32)
        marks += np.uint32(1)
        marks *= np.uint32(0x9E3779B1)
        marks ^= marks >> np.uint32(15)
    return marks


def _list_places(
    values: NDArray[np.float32],
    at: NDArray[np.int64],
    row: NDArray[np.int64],
    ways: Sequence[NDArray[np.float32]],
) -> list[tuple[int, int]]:
    """Places at which the row beside them begins, of the layouts one after the other; and its layout, sorted."""
    n, d = ways[0].shape
    stretches = np.lib.stride_tricks.sliding_window_view(values, d)
    found = set[tuple[int, int]]()
    for way, rows in enumerate(ways):
        (mine,) = np.nonzero(row // n == way)
        for begin in range(0, len(mine), PAIRS):
            some = mine[begin : begin + PAIRS]
            pairs = _standardise(stretches[at[some]]), _standardise(rows[row[some] - way * n])
            near = np.abs(np.einsum("ij,ij->i", *pairs)) >= EXACT
            found.update((place, way) for place in at[some[near]].tolist())
    return sorted(found)


def _find_owners(stretch: NDArray[np.float32], units: NDArray[np.float64]) -> list[int]:
    """Of which examples [n, d], centred, of length 1, a stretch [d] is the place: one and its copies, or none."""
    apart = 1 - (units @ _standardise(stretch[None])[0]) ** 2
    best = int(apart.argmin())
    least = min(CLEARLY * max(float(apart[best]), FLOOR), max(APART, float(apart[best])))
    alike = np.flatnonzero(apart <= least)
    is_copy = 1 - (units[alike] @ units[best]) ** 2 <= SAME
    return alike.tolist() if is_copy.all() else []


def _standardise(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Centred and of length 1; rows that are all alike become 0."""
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", centred, centred))[:, None]
    units: NDArray[np.float64] = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    return units
