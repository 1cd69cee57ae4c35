"""How well images fit stretches of numbers, whatever their scale, offset and sign, and in few bits of each."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats
from fedaudit.attacks.evaluation.copies import find_copies
from fedaudit.attacks.evaluation.readings import Values, list_written, make_finite, quantise, readings
from fedaudit.attacks.modality.images import to_rows

CHUNK = 512  # stretches at a time
EXACT = 0.999  # correlation from which on a stretch is the image; gradients are like images up to .95 or so
FLAT = 1e-9  # of the variance of all numbers: a stretch with less holds no image


def fits(numbers: Floats, images: Floats, rounds: int = 1, width: int | None = None) -> Values:
    """How well each image [n, ...] fits the stretch that it fits best: 0 to 1, [n].

    The last rounds * width numbers are messages of successive rounds, the newest at the end; one by default. In
    what few bits of earlier rounds count, whole copies are found and nothing that is only like an image.
    """
    rows = to_rows(np.asarray(images, np.float64))
    d, width = rows.shape[1], len(numbers) if width is None else width
    small, best = _standardise(rows), np.zeros(len(rows))
    for reading, levels in readings(numbers[len(numbers) - width :]):
        coarse = [_standardise(x) for x in quantise(rows, levels)]
        some = np.concatenate(coarse) if coarse else small
        near = _correlation(list_stretches(reading, d), reading, some)
        best = np.maximum(best, near.reshape(-1, len(rows)).max(axis=0))
    if len(earlier := numbers[: len(numbers) - width]):
        best = np.maximum(best, _correlation(list_stretches(make_finite(earlier), d), earlier, small))
        for reading, levels in readings(earlier):
            if written := list_written(rows, levels):
                for copy in find_copies(reading, np.concatenate(written)):
                    best[copy.example % len(rows)] = 1.0
    series = make_finite(numbers[len(numbers) - rounds * width :]).astype(np.float32).reshape(rounds, width)
    for pieces in _join_pieces(series, d):
        best = np.maximum(best, _correlation(pieces, series, small))
    return best


def find_stretch(numbers: Floats, image: Floats) -> int | None:
    """Where the stretch begins that is the image in plain values; None where there is none."""
    unit, d = _standardise(np.asarray(image, np.float64).reshape(1, -1)), image.size
    values = make_finite(numbers)
    for begin in range(0, len(values) - d + 1, CHUNK):
        stretches = list_stretches(values[begin : begin + CHUNK + d - 1], d)
        if _correlation(stretches, values, unit)[0] >= EXACT:
            return begin + int(np.argmax([_correlation(one[None], values, unit)[0] for one in stretches]))
    return None


def _join_pieces(series: Floats, d: int) -> Iterator[Floats]:
    """Stretches [m, d] of numbers that stand at one place of messages [R, N] in successive rounds, in order.

    As many from each of k rounds that all d are theirs; k rounds from the first, the next k, and the last k.
    """
    rounds, width = series.shape
    for k in (k for k in range(2, min(rounds, d) + 1) if d % k == 0 and d // k <= width):
        for start in sorted({*range(0, rounds - k + 1, k), rounds - k}):
            yield np.concatenate([list_stretches(row, d // k) for row in series[start : start + k]], axis=1)


def _standardise(rows: Values) -> NDArray[np.float32]:
    """Centred and of length 1; rows that are all alike become 0."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows.astype(np.float32)


def list_stretches(values: Floats, d: int) -> Floats:
    """Every d numbers in a row, [m, d]; not a copy."""
    few = np.zeros((0, d)) if len(values) < d else np.lib.stride_tricks.sliding_window_view(values, d)
    return np.asarray(few)


def _correlation(stretches: Floats, values: Floats, rows: NDArray[np.float32]) -> Values:
    """The largest absolute correlation of `rows` [n, d], centred and of length 1, with any stretch of [m, d].

    Single precision is enough: what is left of a mean that is taken off is the same for all numbers of a stretch.
    """
    d, least = rows.shape[1], FLAT * float(make_finite(values).var()) if values.size else 0.0
    best, share = np.zeros(len(rows), np.float32), np.full((d, 1), 1 / d, np.float32)
    for start in range(0, len(stretches), CHUNK):
        some = np.array(stretches[start : start + CHUNK], np.float32)
        some -= some @ share
        length = np.sqrt(np.einsum("ij,ij->i", some, some))
        there = length**2 > least * d
        some *= np.divide(1, length, out=np.zeros_like(length), where=there)[:, None]
        if there.any():
            near = some @ rows.T
            best = np.maximum(best, np.maximum(near.max(axis=0), -near.min(axis=0)))
    return np.minimum(best, 1.0).astype(np.float64)
