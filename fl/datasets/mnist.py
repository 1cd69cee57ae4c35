"""MNIST: 70,000 handwritten digits of 28 x 28 grey pixels.

LeCun, Bottou, Bengio, Haffner 1998. Read from `path`: the four IDX files, plain or gzipped, also a
folder that torchvision filled.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._idx import read_four
from fedaudit.fl.datasets._mnist import locate


class MNIST(Dataset):
    title = "MNIST"
    source = "LeCun et al., Proceedings of the IEEE 1998"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        path: Annotated[
            str | None, Field(description="folder that holds the data set's files; null looks in the cache")
        ] = None
        download: Annotated[bool, Field(description="whether files that are missing may be downloaded")] = False

    def load(self) -> Data:
        paths = locate(
            self.title,
            "MNIST",
            self.config.path,
            self.config.download,
            hint="give `path`, or set `download: true`; `digits` comes with the package",
        )
        train, test = read_four(paths, 10)
        return Data(
            train=train,
            test=test,
            classes=tuple("0123456789"),
            mean=(0.1307,),
            std=(0.3081,),
            about="Handwritten digits of 28 x 28 grey pixels (MNIST).",
        )
