"""CINIC-10: 270,000 colour images of 32 x 32 pixels, CIFAR-10's classes with ImageNet's images.

Darlow, Crowley, Antoniou, Storkey 2018, arXiv:1810.03505. Read from `path`, the unpacked archive
with the folders train, valid and test. Training uses `train` only (90,000 images, as in GANDALF)
unless `with_valid` is on. Values go to [-1, 1], as in GANDALF.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._folders import read_folders
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings


class CINIC10(Dataset):
    title = "CINIC-10"
    holds = "public"
    source = "arXiv:1810.03505"

    @settings
    class Config:
        path: str = Field(description="the unpacked archive, with the folders train, valid and test")
        with_valid: bool = Field(
            default=False, description="whether to train on the images of train and valid, not of train alone"
        )

    def load(self) -> Data:
        root = Path(self.config.path).expanduser()
        names = ["train", "test"] + ["valid"] * self.config.with_valid
        read = {name: read_folders(root / name, 32, grayscale=False) for name in names}
        train, classes = read["train"][0], read["train"][1].classes
        for name in names[1:]:
            other = read[name][1].classes
            if other != classes:
                raise UserError(
                    f"{root / name} has classes {list(other)}, {root / 'train'} has {list(classes)}",
                    hint="unpack the archive again",
                )
        if self.config.with_valid:
            valid = read["valid"][0]
            train = Arrays(x=np.concatenate([train.x, valid.x]), y=np.concatenate([train.y, valid.y]))
        return Data(
            train=train,
            test=read["test"][0],
            classes=classes,
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            about="Small colour images of ten kinds of thing, 32 x 32 pixels (CINIC-10).",
        )
