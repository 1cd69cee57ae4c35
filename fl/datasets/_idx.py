"""IDX, the file format of the MNIST family, plain or gzipped.

Two zero bytes, a type byte (8: unsigned bytes), the number of dimensions, the dimensions as
big-endian 32-bit numbers, then the values. http://yann.lecun.com/exdb/mnist

Also where the data sets of the family lie, and how to get them.
"""

import gzip
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Dataset
from fedaudit.fl.datasets._arrays import find, images
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import DATA
from fedaudit.fl.runtime.settings import settings

PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MOST = 4 << 30  # bytes of one array; the largest of the family has half a gigabyte


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in one file; raises UserError where the file is not what its header says."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(4)
            dims = start[3] if start[:3] == b"\0\0\x08" and len(start) > 3 else 0
            sizes = file.read(4 * dims)
            shape = tuple(int.from_bytes(sizes[4 * i : 4 * i + 4], "big") for i in range(dims))
            raw = file.read(min(prod(shape), MOST) + 1)  # never more than it says, however far a file unfolds
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}", hint="get the file again") from error
    if not dims or len(sizes) != 4 * dims or len(raw) != prod(shape):
        raise UserError(
            f"{path} is not an IDX file of bytes, or is cut short or too long", hint="get the file again"
        )
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def read_pair(images_path: Path, labels_path: Path, classes: int) -> Arrays:
    """Images [N, 1, H, W] with their labels; raises UserError where the two do not belong together."""
    x, y = read_idx(images_path), read_idx(labels_path)
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise UserError(
            f"{images_path.name} {list(x.shape)} and {labels_path.name} {list(y.shape)} do not belong "
            "together: expected [N, height, width] and [N]",
            hint="get both files from one source",
        )
    if len(y) and y.max() >= classes:
        raise UserError(
            f"{labels_path.name} has label {y.max()}, expected 0 to {classes - 1}",
            hint="is this the right data set?",
        )
    return images(x, y)


def read_four(paths: Sequence[Path], classes: int) -> tuple[Arrays, Arrays]:
    """Training and test part from four files in the order of PARTS."""
    return read_pair(paths[0], paths[1], classes), read_pair(paths[2], paths[3], classes)


@settings
class DownloadConfig:
    """Where the files of a published data set lie."""

    path: str | None = Field(
        default=None, description="folder that holds the data set's files; null looks in the cache"
    )
    download: bool = Field(default=False, description="whether files that are missing may be downloaded")

    @property
    def root(self) -> Path:
        """The folder that is stated, or the cache."""
        return Path(self.path).expanduser() if self.path else DATA


class IdxDataset(Dataset):
    """A data set of four IDX files: `config.path` is their folder, or the root that torchvision was given."""

    class Config(DownloadConfig):
        """Where the files lie."""

    published: ClassVar[str]  # torchvision's name of it
    files: ClassVar[Sequence[str]] = PARTS
    installed: ClassVar[Path | None] = None  # where a system package puts it
    hint: ClassVar[str]

    def _list_folders(self) -> list[Path]:
        system = [self.installed] if self.installed and not self.config.path else []
        root = self.config.root
        return [*system, root, root / "raw", root / self.published / "raw"]

    def list_files(self) -> Sequence[Path]:
        """Each of the four wherever it may lie, plain or gzipped, and what lies in `path`."""
        names = [name for plain in self.files for name in (plain, f"{plain}.gz")]
        return [*super().list_files(), *(folder / name for folder in self._list_folders() for name in names)]

    def locate(self, **options: str) -> list[Path]:
        """The four files; downloaded only if told to."""
        try:
            return find(self.title, self._list_folders(), self.files, self.hint)
        except UserError:
            if not self.config.download:
                raise
        from fedaudit.fl.runtime.vision import torchvision

        try:
            getattr(torchvision.datasets, self.published)(str(self.config.root), download=True, **options)
        except (OSError, RuntimeError) as error:
            raise UserError(f"{self.title} could not be downloaded: {error}", hint=self.hint) from error
        return find(self.title, self._list_folders(), self.files, self.hint)
