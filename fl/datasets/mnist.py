"""MNIST and Fashion-MNIST, from IDX files."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedaudit.fl.data.dataset import Data
from fedaudit.fl.datasets._idx import DownloadConfig, IdxDataset, read_four
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("fashion_mnist", "mnist")

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


class MNIST(IdxDataset):
    """MNIST: 70,000 handwritten digits of 28 x 28 grey pixels.

    LeCun, Bottou, Bengio, Haffner 1998. Read from `path`: the four IDX files, plain or gzipped, also a
    folder that torchvision filled.
    """

    title = "MNIST"
    holds = "public"
    source = "LeCun et al., Proceedings of the IEEE 1998"
    published = "MNIST"
    hint = "give `path`, or set `download: true`; `digits` comes with the package"

    def load(self) -> Data:
        train, test = read_four(self.locate(), 10)
        return Data(
            train=train,
            test=test,
            classes=tuple("0123456789"),
            mean=(0.1307,),
            std=(0.3081,),
            about="Handwritten digits of 28 x 28 grey pixels (MNIST).",
        )


class FashionMNIST(IdxDataset):
    """Fashion-MNIST: 70,000 images of clothes of 28 x 28 grey pixels in ten classes.

    Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747. Read from `path` (IDX files, plain or gzipped, also a
    folder that torchvision filled), or from where Debian's package dataset-fashion-mnist puts it.
    Normalised with MNIST's mean and deviation, as in ReBaFL's code.
    """

    title = "Fashion-MNIST"
    holds = "public"
    source = "arXiv:1708.07747"
    published = "FashionMNIST"
    installed = Path("/usr/share/datasets/fashion-mnist")
    hint = "install Debian's dataset-fashion-mnist, give `path`, or set `download: true`"

    @settings
    class Config(DownloadConfig):
        augment: Literal["none", "crop_flip"] = Field(
            default="none", description="what happens to training batches; GANDALF's clients crop and flip"
        )

    def load(self) -> Data:
        train, test = read_four(self.locate(), len(CLASSES))
        return Data(
            train=train,
            test=test,
            classes=CLASSES,
            mean=(0.1307,),
            std=(0.3081,),
            augment=self.config.augment,
            about="Images of clothes of 28 x 28 grey pixels (Fashion-MNIST).",
        )
