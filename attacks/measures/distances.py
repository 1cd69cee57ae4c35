"""Nearest neighbours of pictures, by Euclidean distance of the pixels."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Nearest:
    """For each picture, how far the nearest of the others is, and which, [n] each."""

    distance: Floats
    index: NDArray[np.int64]


def nearest(pictures: Floats, among: Floats, batch: int = 500) -> Nearest:
    """Of pictures [n, ...] among [m, ...], m > 0; a batch of pictures at a time."""
    x = pictures.reshape(len(pictures), -1).astype(np.float64)
    y = among.reshape(len(among), -1).astype(np.float64)
    squares = (y**2).sum(1)
    distance, index = np.zeros(len(x)), np.zeros(len(x), np.int64)
    for i in range(0, len(x), batch):
        part = x[i : i + batch]
        gaps = (part**2).sum(1)[:, None] + squares - 2 * part @ y.T
        best = gaps.argmin(1)
        index[i : i + batch] = best
        # the expanded square loses digits where it is near zero: an exact copy must be at distance 0
        distance[i : i + batch] = np.sqrt(((part - y[best]) ** 2).sum(1))
    return Nearest(distance, index)
