"""The contract of a data set: labelled images (or token sequences) in a training and a test part."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fl.plugin import Plugin


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Images float32 [N, C, H, W] in [0, 1] or tokens int64 [N, T]; labels int64 [N] in 0..classes-1.

    `owner` is the natural client of each example (LEAF: the writer or role), where the data has one.
    """

    x: NDArray[Any]
    y: NDArray[np.int64]
    owner: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: NDArray[np.int64]) -> "Arrays":
        owner = None if self.owner is None else self.owner[index]
        return Arrays(x=self.x[index], y=self.y[index], owner=owner)


@dataclass(frozen=True, kw_only=True)
class Data:
    """One loaded data set. Models see (x - mean) / std, channel by channel; everyone else sees x."""

    train: Arrays
    test: Arrays
    classes: tuple[str, ...]  # names, one a label
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: Literal["none", "crop_flip"] = "none"  # of training batches only
    about: str = ""  # one sentence for the report: what the images are and where they came from

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.train.x.shape[1:])


class Dataset(Plugin):
    """Subclasses write load(). Nothing is downloaded unless the user's config says `download: true`."""

    title: str  # "Fashion-MNIST"

    @abstractmethod
    def load(self) -> Data:
        """Read the data; raises UserError saying where it looked and how to get it."""
