"""EMNIST balanced: 131,600 handwritten letters and digits of 28 x 28 grey pixels in 47 classes.

Cohen, Afshar, Tapson, van Schaik 2017, arXiv:1702.05373. Letters that look alike in both cases are
one class. Read from `path`: the four IDX files emnist-balanced-*, plain or gzipped, also a folder
that torchvision filled. The files hold the images transposed; here they stand upright. Values go
to [-1, 1], as in GANDALF.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.datasets._idx import DownloadConfig, IdxDataset, read_four
from fedaudit.fl.runtime.settings import settings

FILES = tuple(
    f"emnist-balanced-{part}-{kind}-ubyte"
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
)
CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt")


class EMNIST(IdxDataset):
    title = "EMNIST balanced"
    holds = "public"
    source = "arXiv:1702.05373"
    published = "EMNIST"
    files = FILES
    hint = "give `path`, or set `download: true` (562 MB)"

    @settings
    class Config(DownloadConfig):
        download: bool = Field(
            default=False, description="whether files that are missing may be downloaded (562 MB)"
        )

    def load(self) -> Data:
        train, test = (
            Arrays(x=np.ascontiguousarray(a.x.transpose(0, 1, 3, 2)), y=a.y)
            for a in read_four(self.locate(split="balanced"), len(CLASSES))
        )
        return Data(
            train=train,
            test=test,
            classes=CLASSES,
            mean=(0.5,),
            std=(0.5,),
            about="Handwritten letters and digits of 28 x 28 grey pixels (EMNIST balanced).",
        )
