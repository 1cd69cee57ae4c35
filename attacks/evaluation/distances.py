"""Nearest neighbours of images, by Euclidean distance of the pixels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Nearest:
    """For each image, how far the nearest of the others is, and which, [n] each."""

    distance: Floats
    index: NDArray[np.int64]


def distances(x: Floats, y: Floats) -> NDArray[np.float64]:
    """[n, m] of [n, ...] and [m, ...], as a matrix product: many times faster than differences, but a
    distance below a millionth of the images' size is lost in rounding.
    """
    a, b = (z.reshape(len(z), -1).astype(np.float64) for z in (x, y))
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def nearest(images: Floats, among: Floats, batch: int = 500) -> Nearest:
    """Of images [n, ...] among [m, ...], m > 0; a batch of images at a time."""
    distance, index = np.zeros(len(images)), np.zeros(len(images), np.int64)
    for i in range(0, len(images), batch):
        part = images[i : i + batch]
        index[i : i + batch] = best = distances(part, among).argmin(1)
        distance[i : i + batch] = exact(part, among[best])  # a copy must be at distance 0
    return Nearest(distance, index)


def exact(x: Floats, y: Floats) -> NDArray[np.float64]:
    """[n], of the i-th to the i-th."""
    gaps = (np.asarray(x, np.float64) - np.asarray(y, np.float64)).reshape(len(x), -1)
    return np.asarray(np.sqrt((gaps**2).sum(1)))
