"""Scans: invented volumes of [1, 8, 8, 8] with a lesion each, and which places it takes; none is of any person.

A lesion is a ball, brighter than what is around it, under noise. What is predicted is a class for each place:
background or lesion.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.runtime.ranges import AtLeastOne, ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.tasks.segment import Segment

SIDE = 8  # places a side
CONTRAST, NOISE = 0.35, 0.12  # of a lesion, and of the scanner


class Scans(Dataset):
    title = "Invented scans"
    holds = "invented"

    @settings
    class Config:
        scans: AtLeastOne = Field(default=600, description="how many volumes are invented, one a patient")
        test_fraction: ProperShare = Field(default=0.2, description="share of the volumes held out for testing")

    def load(self) -> Data:
        rng = np.random.default_rng(2001)
        n = self.config.scans
        middle, radius = rng.uniform(2, SIDE - 3, (n, 3)), rng.uniform(1.2, 2.4, n)
        places = np.stack(np.meshgrid(*3 * [np.arange(SIDE)], indexing="ij"))  # [3, 8, 8, 8]
        far = np.square(places[None] - middle[:, :, None, None, None]).sum(1)
        lesion = far < np.square(radius)[:, None, None, None]
        tissue = rng.uniform(0.3, 0.4, (n, 1, 1, 1)) + rng.normal(0, NOISE, (n, SIDE, SIDE, SIDE))
        x = (tissue + CONTRAST * lesion).clip(0, 1).astype(np.float32)[:, None]
        held = max(1, round(self.config.test_fraction * n))
        every = Arrays(x=x, y=lesion.astype(np.int64))
        return Data(
            train=every.take(np.arange(held, n)),
            test=every.take(np.arange(held)),
            classes=("background", "lesion"),
            task=Segment(),
            about="Volumes of 8 x 8 x 8 places with a lesion each: made by this program, about no person.",
        )
