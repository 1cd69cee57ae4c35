"""FEMNIST: handwritten letters and digits of 28 x 28 grey pixels, by writer, in 62 classes.

LEAF (Caldas et al. 2018, arXiv:1812.01097). Read from `path`, the JSON files of LEAF's
preprocessing; see fl/datasets/_leaf.py. Ink is dark on white, as in LEAF.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._arrays import moments
from fedaudit.fl.datasets._leaf import read_leaf
from fedaudit.fl.runtime.ranges import ProperShare

CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class FEMNIST(Dataset):
    title = "FEMNIST"
    source = "LEAF, arXiv:1812.01097"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        path: Annotated[str, Field(description="folder of the JSON files that LEAF's preprocessing wrote")]
        test_fraction: Annotated[
            ProperShare,
            Field(description="share of each writer's images held out for testing, where LEAF has not split"),
        ] = 0.2

    def load(self) -> Data:
        # the split belongs to the data set, so it does not depend on the run's seed
        rng = np.random.default_rng(0)
        train, test = read_leaf(self.config.path, _convert, self.config.test_fraction, rng=rng)
        mean, std = moments(train.x)
        return Data(
            train=train,
            test=test,
            classes=CLASSES,
            mean=mean,
            std=std,
            about="Handwritten letters and digits of 28 x 28 grey pixels, by writer (FEMNIST).",
        )


def _convert(x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    pixels, labels = np.array(x, dtype=np.float32), np.array(y)
    if pixels.shape != (len(y), 784) or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError(f"x is {list(pixels.shape)}, expected rows of 784 numbers from 0 to 1")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise ValueError("y holds something else than whole numbers from 0 to 61")
    return pixels.reshape(-1, 1, 28, 28), labels.astype(np.int64)
