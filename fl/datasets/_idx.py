"""IDX, the file format of the MNIST family, plain or gzipped.

Two zero bytes, a type byte (8: unsigned bytes), the number of dimensions, the dimensions as
big-endian 32-bit numbers, then the values. http://yann.lecun.com/exdb/mnist
"""

import gzip
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl.dataset import Arrays
from fl.datasets._arrays import images
from fl.errors import UserError

PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in one file; raises UserError where the file is not what its header says."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}", hint="get the file again") from error
    dims = raw[3] if raw[:3] == b"\0\0\x08" and len(raw) > 3 else 0
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims))
    if not dims or len(raw) != 4 + 4 * dims + prod(shape):
        raise UserError(
            f"{path} is not an IDX file of bytes, or is cut short ({len(raw)} bytes)", hint="get the file again"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dims).reshape(shape)


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
