"""CIFAR-100: 60,000 colour images of 32 x 32 pixels in a hundred classes.

Krizhevsky 2009. Read from `path`: the official binary version (cifar-100-binary) or the Python
version that torchvision reads. Classes are the fine labels, named by number. Training batches are
cropped and flipped at random, as in FedRS and FedDC.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._cifar import read_cifar


class CIFAR100(Dataset):
    title = "CIFAR-100"
    source = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        path: Annotated[
            str | None, Field(description="folder that holds the data set's files; null looks in the cache")
        ] = None
        download: Annotated[bool, Field(description="whether files that are missing may be downloaded")] = False

    def load(self) -> Data:
        return read_cifar(
            "CIFAR100",
            self.config.path,
            self.config.download,
            folder="cifar-100-binary",
            train=["train.bin"],
            test=["test.bin"],
            label_bytes=2,
            classes=tuple(map(str, range(100))),
        )
