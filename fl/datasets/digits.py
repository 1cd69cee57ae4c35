"""Digits: 1,797 handwritten digits of 8 x 8 pixels. Comes with scikit-learn, nothing is downloaded.

The test part of the UCI "Optical Recognition of Handwritten Digits" set, values 0 to 16. A fifth of
every class is held out for testing, always the same.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import hold_out, moments, read_numbers
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
        numbers = read_numbers("digits.csv.gz", ",")  # 64 pixels and the label of each image
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
