"""Planted messages of large networks lie in files, from which each process maps what it reads.

A hundred models of 11 million numbers are 4.5 GB. In memory they would be copied into each process that plants or
attacks them; pages of a file are shared, and the system may drop them and read them again.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 2**20  # bytes of a message that are worth a file
ALIGNED = 64  # bytes, at which arrays begin

Array = NDArray[Any]


class ArraysOnDisk(Mapping[str, Array]):
    """Arrays by name, in a file of their own; who changes one changes neither the file nor what others read."""

    def __init__(self, folder: Path, arrays: Mapping[str, Array]) -> None:
        """Raises OSError where the file cannot be written, and leaves none."""
        self._places: dict[str, tuple[str, tuple[int, ...], int]] = {}
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            self._file = Path(file.name)
            try:
                for name, array in arrays.items():
                    file.write(bytes(-file.tell() % ALIGNED))
                    self._places[name] = array.dtype.str, array.shape, file.tell()
                    file.write(np.ascontiguousarray(array).data)
            except OSError:
                self._file.unlink()
                raise

    def __getitem__(self, name: str) -> Array:
        kind, shape, at = self._places[name]
        if not np.prod(shape):  # nothing can be mapped
            return np.zeros(shape, kind)
        return np.asarray(np.memmap(self._file, kind, "c", at, shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def spill(arrays: Mapping[str, Array], folder: Path | None) -> Mapping[str, Array]:
    """The same arrays, in a file of the folder where they are large; in memory where it has no room for them."""
    if folder is None or sum(a.nbytes for a in arrays.values()) < LARGE:
        return arrays
    try:
        return ArraysOnDisk(folder, arrays)
    except OSError:
        return arrays
