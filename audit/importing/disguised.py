"""Disguised examples: a site's own images in what it sends, written so that the numbers do not look like them.

Each disguise is held against all images of the site: they stand in the last bits of numbers, in the signs
of zeros, in pieces of a row, or as all values of an image in an order that only its reader knows. Trained
numbers are like none of these by chance: bits and signs must be a whole image, a piece the very numbers of a
row, an order all values.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.copies import find_copies
from fedaudit.attacks.evaluation.readings import list_written, read_last_bits

LAST_BITS = "in the last bits of its numbers"
SIGNS = "in the signs of its zeros"
PIECES = "in pieces, number by number"
ORDER = "in another order"
LEAST = 16  # pixels of an image that is told from chance
LEVELS = 16  # grey levels of an image in last bits, at least: 10 million numbers take a second each way
ZEROS = 100_000  # of which signs are read, at most
PIECE = 8  # neighbouring pixels that are a piece
DIFFERENT = 3  # values of a piece that is no flat ground
COMMON = 0.05  # share of numbers that are some pixel's: where there are more, numbers are on the images' own grid
TRIED = 1000  # pieces that are looked for among the images, at most
VALUES = 8  # different ones of an image that is known by them
SAME = 1e-5  # of a standard deviation, by which sorted values may differ
BITS = 24  # of the table of pixels' values

Payload = Mapping[str, NDArray[Any]]
Row = NDArray[np.float32]


def find_disguised(payload: Payload, images: NDArray[Any]) -> dict[str, set[int]]:
    """How images [n, ...] stand in the arrays of a payload -> which of them do."""
    rows = np.ascontiguousarray(images, np.float32).reshape(len(images), -1)
    arrays = [np.asarray(v, np.float32).ravel() for _, v in sorted(payload.items()) if v.dtype.kind == "f"]
    if not arrays or not rows.size or rows.shape[1] < LEAST:
        return {}
    numbers = np.concatenate(arrays)
    starts = np.cumsum([0, *(v.size for v in arrays[:-1])])
    found = {
        LAST_BITS: _find_in_bits(numbers, rows),
        SIGNS: _find_in_signs(numbers, rows),
        PIECES: _find_pieces(numbers, rows),
        ORDER: _find_reordered(numbers, starts, rows),
    }
    return {how: examples for how, examples in found.items() if examples}


def _find_in_bits(numbers: Row, rows: Row) -> set[int]:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda way: {*_find_written(way[0], rows, way[1])}, read_last_bits(numbers, LEVELS))
    return {i for some in found for i in some}


def _find_in_signs(numbers: Row, rows: Row) -> set[int]:
    signs = np.signbit(numbers[numbers == 0][:ZEROS])
    return set() if signs.all() or not signs.any() else {*_find_written(signs.astype(np.float64), rows, 2)}


def _find_written(reading: NDArray[np.float64], rows: Row, levels: int) -> Iterator[int]:
    written = np.concatenate(list_written(rows.astype(np.float64), levels))
    for copy in find_copies(reading, written):
        yield copy.example % len(rows)


def _find_pieces(numbers: Row, rows: Row) -> set[int]:
    """Images of which neighbouring pixels stand there to the last bit."""
    table = np.zeros(1 << BITS, bool)
    table[_hash(rows.ravel())] = True
    is_pixel = table[_hash(numbers)]
    counted = np.concatenate([[0], np.cumsum(is_pixel)])
    if counted[-1] - (numbers == 0).sum() > COMMON * len(numbers):
        return set()
    (places,) = np.nonzero(counted[PIECE:] - counted[:-PIECE] == PIECE)
    pieces = np.unique(np.array([numbers[at : at + PIECE] for at in places.tolist()]).reshape(-1, PIECE), axis=0)
    pieces = pieces[(np.diff(np.sort(pieces, axis=1), axis=1) > 0).sum(axis=1) >= DIFFERENT - 1]
    found = set[int]()
    for piece in pieces[:TRIED]:
        candidates, at = np.nonzero(rows[:, : rows.shape[1] - PIECE + 1] == piece[0])
        there = (rows[candidates[:, None], at[:, None] + np.arange(PIECE)] == piece).all(axis=1)
        found.update(candidates[there].tolist())
    return found


def _find_reordered(numbers: Row, starts: NDArray[np.int64], rows: Row) -> set[int]:
    """Images all of whose values stand together where an array begins, whatever their order, scale and offset."""
    d = rows.shape[1]
    varied = (np.diff(np.sort(rows, axis=1), axis=1) > 0).sum(axis=1) >= VALUES - 1
    sorted_rows = _sort_values(rows)
    found = set[int]()
    for begin in starts[starts + d <= len(numbers)].tolist():
        some = numbers[begin : begin + d]
        for turned in (some, -some):
            values = _sort_values(turned[None])
            near = np.abs(sorted_rows[:, [0, d // 4, d // 2, -1]] - values[:, [0, d // 4, d // 2, -1]]).max(
                axis=1
            )
            (candidates,) = np.nonzero(varied & (near <= SAME))
            same = np.abs(sorted_rows[candidates] - values).max(axis=1, initial=0.0) <= SAME
            found.update(candidates[same].tolist())
    return found


def _sort_values(rows: Row) -> NDArray[np.float64]:
    """Each row [d] in order, centred, of standard deviation 1; rows that are all alike become 0."""
    ordered = np.sort(rows.astype(np.float64), axis=1)
    ordered -= ordered.mean(axis=1, keepdims=True)
    return np.asarray(ordered / np.maximum(ordered.std(axis=1, keepdims=True), 1e-12))


def _hash(values: Row) -> NDArray[np.uint32]:
    return (values.view(np.uint32) * np.uint32(0x9E3779B1)) >> np.uint32(32 - BITS)
