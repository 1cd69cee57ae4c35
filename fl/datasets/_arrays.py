"""From raw pixels and labels to checked arrays."""

import importlib.util
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.runtime.errors import UserError


def images(pixels: NDArray[np.uint8], labels: NDArray[np.integer]) -> Arrays:
    """Bytes [N, H, W] or [N, C, H, W] and labels [N] as the contract wants them."""
    x = (pixels[:, None] if pixels.ndim == 3 else pixels).astype(np.float32)
    x /= np.float32(255)  # in place: large data sets take gigabytes
    return Arrays(x=x, y=labels.astype(np.int64))


def moments(x: NDArray[np.float32]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of [N, C, ...], or column of [N, F], as Data wants them."""
    others = (0, *range(2, x.ndim))
    mean = x.mean(axis=others, dtype=np.float64)
    along = mean.reshape(-1, *(1 for _ in others[1:]))
    # in pieces: x.std makes a copy in double precision, several gigabytes for FEMNIST
    squares = [((x[i : i + 4096] - along) ** 2).sum(others) for i in range(0, len(x), 4096)]
    std = np.sqrt(np.sum(squares, axis=0) / (x.size / x.shape[1]))
    return tuple(map(float, mean)), tuple(float(s) if s > 0 else 1.0 for s in std)


def hold_out(arrays: Arrays, fraction: float) -> tuple[Arrays, Arrays]:
    """Training and test part: the same fraction of every class, the same examples on every call.

    The split belongs to the data set, so it does not depend on the run's seed.
    """
    _, labels, counts = np.unique(arrays.y, return_inverse=True, return_counts=True)
    tests = math.ceil(fraction * len(arrays))
    if counts.min(initial=2) < 2 or min(tests, len(arrays) - tests) < len(counts) or not len(arrays):
        raise UserError(
            f"test_fraction {fraction:g} cannot be held out of {len(arrays)} examples of {len(counts)} classes",
            hint="every class needs at least two examples and both parts one of each class",
        )
    rng = np.random.RandomState(0)
    of_train = _share_out(counts, len(arrays) - tests, rng)
    of_test = _share_out(counts - of_train, tests, rng)
    train, test = [], []
    for rows, first, second in zip(_split_by_class(labels, counts), of_train, of_test, strict=True):
        mixed = rows[rng.permutation(len(rows))]
        train.append(mixed[:first])
        test.append(mixed[first : first + second])
    return arrays.take(np.sort(np.concatenate(train))), arrays.take(np.sort(np.concatenate(test)))


def _split_by_class(labels: NDArray[np.int64], counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows of each class in their order."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def _share_out(counts: NDArray[np.int64], draws: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """How many of each class make `draws`, in proportion; what is left over goes to the largest remainders.

    Equal remainders are drawn from as in scikit-learn's train_test_split: this is its split to the last example.
    """
    exact = counts / counts.sum() * draws
    whole = np.floor(exact)
    remainder, missing = exact - whole, int(draws - whole.sum())
    for value in np.unique(remainder)[::-1]:
        if missing <= 0:
            break
        equal = np.flatnonzero(remainder == value)
        more = rng.choice(equal, size=min(len(equal), missing), replace=False)
        whole[more] += 1
        missing -= len(more)
    return np.asarray(whole, np.int64)


@cache  # for the digits a tenth of a second is spent once a process
def read_numbers(name: str, delimiter: str | None = None, skip: int = 0) -> NDArray[np.float64]:
    """The rows of a file of `sklearn.datasets`, but for its first lines, without scikit-learn's imports."""
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None and spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / name
    return np.loadtxt(file, delimiter=delimiter, skiprows=skip)


def find(name: str, folders: Sequence[Path], files: Sequence[str], hint: str) -> list[Path]:
    """The first of `folders` that has all `files`, each as it is or with .gz; UserError if none."""
    for folder in folders:
        found = [[p for p in (folder / f, folder / f"{f}.gz") if p.is_file()] for f in files]
        if all(found):
            return [p[0] for p in found]
    looked = ", ".join(map(str, folders))
    raise UserError(f"{name} is not there: looked for {files[0]}[.gz] and so on in {looked}", hint=hint)
