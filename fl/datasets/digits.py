"""Digits: 1,797 handwritten digits of 8 x 8 pixels. Comes with scikit-learn, nothing is downloaded.

The test part of the UCI "Optical Recognition of Handwritten Digits" set, values 0 to 16. A fifth of
every class is held out for testing, always the same.
"""

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import hold_out, moments
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings


class Digits(Dataset):
    title = "Digits"
    holds = "public"
    source = "scikit-learn; UCI Optical Recognition of Handwritten Digits"

    @settings
    class Config:
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the images that is held out for testing"
        )

    def load(self) -> Data:
        numbers = _read_numbers()
        x = (numbers[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
        everything = Arrays(x=x, y=numbers[:, -1].astype(np.int64))
        train, test = hold_out(everything, self.config.test_fraction)
        mean, std = moments(train.x)
        return Data(
            train=train,
            test=test,
            classes=tuple("0123456789"),
            mean=mean,
            std=std,
            about="Handwritten digits of 8 x 8 pixels that come with scikit-learn.",
        )


@cache  # 0.9 MB, for which a tenth of a second is spent once a process
def _read_numbers() -> NDArray[np.float64]:
    """64 pixels and the label of each image, as `sklearn.datasets.load_digits` has them, without its imports."""
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None and spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(file, "rt") as lines:
        return np.loadtxt(lines, delimiter=",")
