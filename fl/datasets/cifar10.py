"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes.

Krizhevsky 2009. Read from `path`: the official binary version (cifar-10-batches-bin) or the Python
version that torchvision reads. Training batches are cropped and flipped at random, as in FedRS and
FedDC.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._cifar import read_cifar

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class CIFAR10(Dataset):
    title = "CIFAR-10"
    source = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        path: Annotated[
            str | None, Field(description="folder that holds the data set's files; null looks in the cache")
        ] = None
        download: Annotated[bool, Field(description="whether files that are missing may be downloaded")] = False

    def load(self) -> Data:
        return read_cifar(
            "CIFAR10",
            self.config.path,
            self.config.download,
            folder="cifar-10-batches-bin",
            train=[f"data_batch_{i}.bin" for i in range(1, 6)],
            test=["test_batch.bin"],
            label_bytes=1,
            classes=CLASSES,
        )
