"""Readings: the ways in which an image may be written into floating-point numbers, and what then stands there.

As the numbers are, in the last bits of each, and in their signs, those of zeros too.
"""

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats

Values = NDArray[np.float64]
BITS = (2, 3, 4, 5, 8)  # of a float32's 23 that hold what it is worth
COARSE = 16  # grey levels up to which an image is less than like itself
FINE = 8  # grey levels from which on 16 pixels are more than LEAST_BITS
LEAST_BITS = 32  # in an image of few grey levels, below which numbers are like it by chance


def readings(numbers: Floats) -> Iterator[tuple[Values, int]]:
    """The numbers as they are, what their last bits count, and their signs, those of zeros too.

    With each how many values it may have, 0 for any number.
    """
    exact = np.ascontiguousarray(numbers, np.float32)
    yield make_finite(exact), 0
    yield from read_last_bits(exact)
    yield np.signbit(exact).astype(np.float64), 2


def read_last_bits(numbers: NDArray[np.float32], least: int = 0) -> Iterator[tuple[Values, int]]:
    """What the last bits of each number count, and how many values that may have, which are `least` or more."""
    for width in BITS:
        if 2**width >= least:
            yield (numbers.view(np.uint32) & np.uint32(2**width - 1)).astype(np.float64), 2**width


def quantise(rows: Values, levels: int) -> list[Values]:
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


def list_written(rows: Values, levels: int) -> list[Values]:
    """Images as they may stand in numbers of so many values: in as many grey levels, or in their own."""
    return [*quantise(rows, levels), *([rows] if levels >= FINE else [])]


def _count_bits(grey: Values, levels: int) -> Values:
    """log2 of how many images [n, d] chance would have to choose from, scale and offset apart.

    Last bits are as good as drawn. Signs may be mostly of one kind, so that only their order is.
    """
    d = grey.shape[1]
    if levels > 2:
        return np.full(len(grey), (d - 2) * np.log2(levels))
    marks = grey.sum(axis=1)
    orders = (
        scipy.special.gammaln(d + 1.0)
        - scipy.special.gammaln(marks + 1.0)
        - scipy.special.gammaln(d - marks + 1.0)
    )
    return np.asarray(orders / np.log(2))


def make_finite(numbers: Floats) -> Values:
    """The numbers without infinite ones and those that are none."""
    return np.nan_to_num(np.asarray(numbers, np.float64), posinf=0.0, neginf=0.0)
