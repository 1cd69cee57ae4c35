"""CIFAR's files: the official binary version with numpy, the Python version through torchvision.

A record of the binary version is one label byte (two in CIFAR-100: coarse, fine) and 3,072 bytes of
red, green and blue rows. The Python version is a pickle; torchvision opens it only where its MD5 is
the published one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import images
from fedaudit.fl.datasets._idx import DownloadConfig
from fedaudit.fl.runtime.errors import UserError

PLUGINS = ("cifar10", "cifar100")

PIXELS = 3 * 32 * 32

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_binary(paths: Sequence[Path], label_bytes: int, classes: int) -> Arrays:
    """The records of some files; the last label byte is the class."""
    raw = []
    for path in paths:
        data = np.fromfile(path, dtype=np.uint8)
        if not len(data) or len(data) % (label_bytes + PIXELS):
            raise UserError(
                f"{path} has {len(data)} bytes, expected a multiple of {label_bytes + PIXELS}",
                hint="get the binary version again",
            )
        raw.append(data.reshape(-1, label_bytes + PIXELS))
    records = np.concatenate(raw)
    labels = records[:, label_bytes - 1]
    if labels.max() >= classes:
        raise UserError(
            f"{paths[0].parent} has label {labels.max()}, expected 0 to {classes - 1}",
            hint="is this the right data set?",
        )
    return images(records[:, label_bytes:].reshape(-1, 3, 32, 32), labels)


def _read_python(name: str, root: Path, download: bool, train: bool, folder: str) -> Arrays:
    from fedaudit.fl.runtime.vision import torchvision

    try:
        found: Any = getattr(torchvision.datasets, name)(str(root), train=train, download=download)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"{name} is not there: looked for {folder} and for torchvision's files in {root}",
            hint="give `path`, the folder that holds them, or set `download: true`",
        ) from error
    return images(found.data.transpose(0, 3, 1, 2), np.array(found.targets))


class _Cifar(Dataset):
    """One of both, as its subclass says where its records lie and what they look like."""

    holds = "public"
    source = "Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"

    class Config(DownloadConfig):
        """Where the files lie."""

    folder: str  # of the binary version
    pickles: str  # folder of the Python version
    train: Sequence[str]  # its files
    test: Sequence[str]
    label_bytes: int
    classes: tuple[str, ...]

    def list_files(self) -> Sequence[Path]:
        """Files of the binary version wherever they may lie, the folder of the other, what lies in `path`."""
        root = self.config.root
        places = (root, root / self.folder)
        binary = (p / f for p in places for f in (*self.train, *self.test))
        return [*super().list_files(), *binary, root / self.pickles]

    def load(self) -> Data:
        """From `path` or the cache; downloaded only if told to."""
        root = self.config.root
        for place in (root, root / self.folder):
            files = [[place / f for f in names] for names in (self.train, self.test)]
            if all(f.is_file() for part in files for f in part):
                parts = [read_binary(part, self.label_bytes, len(self.classes)) for part in files]
                break
        else:
            name = type(self).__name__
            parts = [_read_python(name, root, self.config.download, part, self.folder) for part in (True, False)]
        return Data(
            train=parts[0],
            test=parts[1],
            classes=self.classes,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2023, 0.1994, 0.2010),
            augment="crop_flip",
            about=f"Small colour images of {len(self.classes)} kinds of thing, 32 x 32 pixels "
            f"({type(self).__name__}).",
        )


class CIFAR10(_Cifar):
    """CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes.

    Krizhevsky 2009. Read from `path`: the official binary version (cifar-10-batches-bin) or the Python
    version that torchvision reads. Training batches are cropped and flipped at random, as in FedRS and
    FedDC.
    """

    title = "CIFAR-10"
    folder = "cifar-10-batches-bin"
    pickles = "cifar-10-batches-py"
    train = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    test = ("test_batch.bin",)
    label_bytes = 1
    classes = CLASSES


class CIFAR100(_Cifar):
    """CIFAR-100: 60,000 colour images of 32 x 32 pixels in a hundred classes.

    Krizhevsky 2009. Read from `path`: the official binary version (cifar-100-binary) or the Python
    version that torchvision reads. Classes are the fine labels, named by number. Training batches are
    cropped and flipped at random, as in FedRS and FedDC.
    """

    title = "CIFAR-100"
    folder = "cifar-100-binary"
    pickles = "cifar-100-python"
    train = ("train.bin",)
    test = ("test.bin",)
    label_bytes = 2
    classes = tuple(map(str, range(100)))
