"""How well images fit stretches of numbers, whatever their scale, offset and sign, and in few bits of each."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fedaudit.attacks.attack import Floats
from fedaudit.attacks.evaluation.copies import find_copies

Values = NDArray[np.float64]
BITS = (2, 3, 4, 5, 8)  # of a float32's 23 that hold what it is worth
CHUNK = 4096  # stretches at a time
EXACT = 0.999  # correlation from which on a stretch is the image; gradients are like images up to .95 or so
COARSE = 16  # grey levels up to which an image is less than EXACT like itself
FINE = 8  # grey levels from which on 16 pixels are more than LEAST_BITS
LEAST_BITS = 32  # in an image of few grey levels, below which numbers are like it by chance
FLAT = 1e-9  # of the variance of all numbers: a stretch with less holds no image


def fits(numbers: Floats, images: Floats, rounds: int = 1, width: int | None = None) -> Values:
    """How well each image [n, ...] fits the stretch that it fits best: 0 to 1, [n].

    The last rounds * width numbers are messages of successive rounds, the newest at the end; one by default. In
    what few bits of earlier rounds count, whole copies are found and nothing that is only like an image.
    """
    rows = np.asarray(images, np.float64).reshape(len(images), -1)
    d, width = rows.shape[1], len(numbers) if width is None else width
    small, best = _standardise(rows), np.zeros(len(rows))
    for reading, levels in readings(numbers[len(numbers) - width :]):
        coarse = [_standardise(x) for x in _quantise(rows, levels)]
        some = np.concatenate(coarse) if coarse else small
        near = _correlation(list_stretches(reading, d), reading, some)
        best = np.maximum(best, near.reshape(-1, len(rows)).max(axis=0))
    earlier = numbers[: len(numbers) - width]
    best = np.maximum(best, _correlation(list_stretches(_finite(earlier), d), _finite(earlier), small))
    for reading, levels in readings(earlier):
        for written in _list_written(rows, levels):
            best[[copy.example for copy in find_copies(reading, written)]] = 1.0
    series = _finite(numbers[len(numbers) - rounds * width :]).reshape(rounds, width)
    for pieces in _join_pieces(series, d):
        best = np.maximum(best, _correlation(pieces, series, small))
    return best


def find_stretch(numbers: Floats, image: Floats) -> int | None:
    """Where the stretch begins that is the image in plain values; None where there is none."""
    unit, d = _standardise(np.asarray(image, np.float64).reshape(1, -1)), image.size
    values = _finite(numbers)
    for begin in range(0, len(values) - d + 1, CHUNK):
        stretches = list_stretches(values[begin : begin + CHUNK + d - 1], d)
        if _correlation(stretches, values, unit)[0] >= EXACT:
            return begin + int(np.argmax([_correlation(one[None], values, unit)[0] for one in stretches]))
    return None


def _join_pieces(series: Values, d: int) -> Iterator[Values]:
    """Stretches [m, d] of numbers that stand at one place of messages [R, N] in successive rounds, in order.

    As many from each of k rounds that all d are theirs; k rounds from the first, the next k, and the last k.
    """
    rounds, width = series.shape
    for k in (k for k in range(2, min(rounds, d) + 1) if d % k == 0 and d // k <= width):
        for start in sorted({*range(0, rounds - k + 1, k), rounds - k}):
            yield np.concatenate([list_stretches(row, d // k) for row in series[start : start + k]], axis=1)


def readings(numbers: Floats) -> Iterator[tuple[Values, int]]:
    """The numbers as they are, what their last bits count, and their signs, those of zeros too.

    With each how many values it may have, 0 for any number.
    """
    exact = np.ascontiguousarray(numbers, np.float32)
    yield _finite(exact), 0
    for width in BITS:
        yield (exact.view(np.uint32) & np.uint32(2**width - 1)).astype(np.float64), 2**width
    yield np.signbit(exact).astype(np.float64), 2


def _standardise(rows: Values) -> NDArray[np.float32]:
    """Centred and of length 1; rows that are all alike become 0."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows.astype(np.float32)


def _quantise(rows: Values, levels: int) -> list[Values]:
    """Images [n, d] in so few grey levels, rounded to the nearest and cut off; none where that changes little.

    Rows that keep too little of an image to tell it from chance are 0.
    """
    if not 2 <= levels <= COARSE:
        return []
    low = np.minimum(rows.min(axis=1, keepdims=True), 0)
    grey = (rows - low) / np.maximum(np.maximum(rows.max(axis=1, keepdims=True), 1) - low, 1e-12)
    ways = [np.rint(grey * (levels - 1))]
    if levels > 2:
        ways.append(np.minimum(np.floor(grey * levels), levels - 1))
    return [np.where(_count_bits(x, levels)[:, None] >= LEAST_BITS, x, 0.0) for x in ways]


def _list_written(rows: Values, levels: int) -> list[Values]:
    """Images as they may stand in numbers of so many values: in as many grey levels, or in their own."""
    return [*_quantise(rows, levels), *([rows] if levels >= FINE else [])]


def _count_bits(grey: Values, levels: int) -> Values:
    """log2 of how many images [n, d] chance would have to choose from, scale and offset apart.

    Last bits are as good as drawn. Signs may be mostly of one kind, so that only their order is.
    """
    d = grey.shape[1]
    if levels > 2:
        return np.full(len(grey), (d - 2) * np.log2(levels))
    marks = grey.sum(axis=1)
    orders = special.gammaln(d + 1.0) - special.gammaln(marks + 1.0) - special.gammaln(d - marks + 1.0)
    return np.asarray(orders / np.log(2))


def _finite(numbers: Floats) -> Values:
    return np.nan_to_num(np.asarray(numbers, np.float64), posinf=0.0, neginf=0.0)


def list_stretches(values: Floats, d: int) -> Values:
    """Every d numbers in a row, [m, d]; not a copy."""
    few = np.zeros((0, d)) if len(values) < d else np.lib.stride_tricks.sliding_window_view(values, d)
    return np.asarray(few)


def _correlation(stretches: Values, values: Values, rows: NDArray[np.float32]) -> Values:
    """The largest absolute correlation of `rows` [n, d], centred and of length 1, with any stretch of [m, d].

    Single precision is enough for numbers of which the mean is taken off before.
    """
    d, least = rows.shape[1], FLAT * float(values.var()) if values.size else 0.0
    best = np.zeros(len(rows), np.float32)
    for start in range(0, len(stretches), CHUNK):
        some = stretches[start : start + CHUNK]
        some = some - some.mean(axis=1, keepdims=True)
        length = np.sqrt(np.einsum("ij,ij->i", some, some))
        there = length**2 > least * d
        if there.any():
            unit = (some[there] / length[there, None]).astype(np.float32)
            best = np.maximum(best, np.abs(unit @ rows.T).max(axis=0))
    return np.minimum(best, 1.0).astype(np.float64)
