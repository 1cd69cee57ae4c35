"""Re-identification: is the claimed image nearer to the true one than to others of its class?

A gallery holds one true image and G - 1 that were never trained on, all of one class, so knowing
the class is worth nothing and chance is exactly 1/G. The distance is the mean squared pixel error.
Known as image identifiability precision where the gallery is the whole data set (Yin et al., CVPR
2021, arXiv:2104.07586, sec. 4.1); a fixed G makes classes and data sets comparable.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """What each claim scores, [k] each; ties are shared out as a coin would."""

    rank: NDArray[np.float64]  # expected rank of the true image, 1 is nearest
    rank1: NDArray[np.float64]  # probability that it is nearest
    rank5: NDArray[np.float64]  # probability that it is among the nearest five


def fingerprints(images: Floats) -> list[bytes]:
    """A hash of each image: equal for exact copies. Public data sets contain some."""
    rows = (np.ascontiguousarray(x, np.float32).tobytes() for x in images)
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


class Pool:
    """Images of one class that nobody trained on, without copies, to draw galleries from."""

    def __init__(self, images: Floats) -> None:
        first = {mark: i for i, mark in reversed(list(enumerate(fingerprints(images))))}
        self._marks = sorted(first, key=first.__getitem__)
        self.images: Floats = images[[first[m] for m in self._marks]]

    def __len__(self) -> int:
        return len(self.images)

    def rows_without(self, marks: Iterable[bytes]) -> NDArray[np.int64]:
        """Rows of the images that are no copies of those with these fingerprints."""
        taken = set(marks)
        return np.array([i for i, m in enumerate(self._marks) if m not in taken], np.int64)

    def without(self, marks: Iterable[bytes]) -> Floats:
        """The images themselves."""
        kept: Floats = self.images[self.rows_without(marks)]
        return kept


def ranks(claimed: Floats, true: Floats, galleries: Iterable[Floats]) -> Ranks:
    """claimed and true [k, C, H, W]; k galleries [G - 1, C, H, W] without the true image."""
    nearer, tied = [], []
    for x, own, others in zip(claimed, true, galleries, strict=True):
        to_true, to_others = _distances(x, own[None]), _distances(x, others)
        nearer.append((to_others < to_true).sum())
        tied.append((to_others == to_true).sum())
    before, equal = np.array(nearer, np.float64), np.array(tied, np.float64)
    return Ranks(
        rank=1 + before + equal / 2,
        rank1=np.clip((1 - before) / (equal + 1), 0, 1),
        rank5=np.clip((5 - before) / (equal + 1), 0, 1),
    )


def _distances(x: Floats, others: Floats) -> NDArray[np.float64]:
    gaps = others.astype(np.float64) - x
    return np.asarray((gaps**2).reshape(len(gaps), -1).sum(axis=1))
