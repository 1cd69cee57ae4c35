"""Faces: 100 faces and 100 pieces of background, 25 x 25 grey pixels. Comes with scikit-image.

A subset of Labeled Faces in the Wild (Huang et al.). The class is "face" or "no face"; who is shown
is not known. A fifth of both classes is held out for testing, always the same.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import hold_out, moments
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings


class Faces(Dataset):
    title = "Faces"
    holds = "public"
    source = "scikit-image; Labeled Faces in the Wild"

    @settings
    class Config:
        test_fraction: ProperShare = Field(
            default=0.2, description="share of the images that is held out for testing"
        )

    def load(self) -> Data:
        from skimage.data import lfw_subset

        x = lfw_subset()[:, None].astype(np.float32)  # [200, 1, 25, 25] in [0, 1], faces first
        everything = Arrays(x=x, y=np.repeat(np.array([0, 1], dtype=np.int64), 100))
        train, test = hold_out(everything, self.config.test_fraction)
        mean, std = moments(train.x)
        return Data(
            train=train,
            test=test,
            classes=("face", "no face"),
            mean=mean,
            std=std,
            about="Faces and pieces of background of 25 x 25 pixels from Labeled Faces in the Wild, "
            "as they come with scikit-image.",
        )
