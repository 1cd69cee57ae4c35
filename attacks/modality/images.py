"""Images and volumes beside others of their kind: how alike they are, which are copies, and which lie nearest.

MSE, PSNR and SSIM of stacks [k, C, H, W] in [0, 1] are one number an image. SSIM: Wang, Bovik, Sheikh,
Simoncelli. IEEE Trans. Image Processing 2004, by a uniform window, the sample covariance, and the mean over
channels. A Gaussian window gives other numbers. None of the three says whose image it is: the class mean alone
reaches an SSIM of 0.4 on Fashion-MNIST. Neighbours are those by the Euclidean distance of the pixels.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def to_rows(examples: NDArray[Any]) -> NDArray[Any]:
    """The numbers of each example as one row, [k, ...] -> [k, D]; k may be 0."""
    return examples.reshape(len(examples), math.prod(examples.shape[1:]))


def mse(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Mean squared error; [k, C, H, W] twice -> [k]."""
    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    return np.asarray(to_rows(gap**2).mean(axis=1))


def psnr(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Peak signal-to-noise ratio in dB; at most 100, so that an exact copy has a mean."""
    decibel: NDArray[np.float64] = -10 * np.log10(np.maximum(mse(a, b), 1e-10))
    return decibel


def ssim(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Structural similarity; images or volumes [k, C, *places] twice -> [k]. 1 for a copy, about 0 for unrelated.

    Of scikit-image, over windows of 7 places a side, or the largest odd number that fits a smaller one.
    """
    from skimage.metrics import structural_similarity

    least = min(7, *a.shape[2:])
    side = least if least % 2 else least - 1
    compare = partial(  # of a window of one place there is no sample
        structural_similarity, win_size=side, data_range=1.0, channel_axis=0, use_sample_covariance=side > 1
    )
    return np.array([compare(np.float64(x), np.float64(y)) for x, y in zip(a, b, strict=True)], np.float64)


@dataclass(frozen=True)
class Nearest:
    """For each image, how far the nearest of the others is, and which, [n] each."""

    distance: Floats
    index: NDArray[np.int64]


def distances(x: Floats, y: Floats) -> NDArray[np.float64]:
    """[n, m] of [n, ...] and [m, ...], as a matrix product: many times faster than differences, but a
    distance below a millionth of the images' size is lost in rounding.
    """
    a, b = (to_rows(z).astype(np.float64) for z in (x, y))
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
    gaps = to_rows(np.asarray(x, np.float64) - np.asarray(y, np.float64))
    return np.asarray(np.sqrt((gaps**2).sum(1)))


def fingerprints(images: Floats) -> list[bytes]:
    """A hash of each image: equal for exact copies. Public data sets contain some."""
    rows = (np.ascontiguousarray(x, np.float32).tobytes() for x in images)
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


class ImagePool:
    """Images of one class that nobody trained on, without copies, to draw galleries from."""

    def __init__(self, images: Floats) -> None:
        first = {mark: i for i, mark in reversed(list(enumerate(fingerprints(images))))}
        self.marks = sorted(first, key=first.__getitem__)
        self.images: Floats = images[[first[m] for m in self.marks]]

    def __len__(self) -> int:
        return len(self.images)

    def rows_without(self, marks: Iterable[bytes]) -> NDArray[np.int64]:
        """Rows of the images that are no copies of those with these fingerprints."""
        taken = set(marks)
        return np.array([i for i, m in enumerate(self.marks) if m not in taken], np.int64)

    def without(self, marks: Iterable[bytes]) -> Floats:
        """The images themselves."""
        kept: Floats = self.images[self.rows_without(marks)]
        return kept
