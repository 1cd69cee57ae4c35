"""LEAF's JSON files (Caldas et al. 2018, arXiv:1812.01097): examples by the people they come from.

    {"users": ["a", ...], "num_samples": [3, ...], "user_data": {"a": {"x": [...], "y": [...]}}}

A data set is a folder with train/*.json and test/*.json, as LEAF's own split leaves it; or only
*.json, of which each person's last `test_fraction` is held out here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.runtime.errors import UserError

# raw x and y of one person -> arrays; raises ValueError where they are not what they should be
Convert = Callable[[list[Any], list[Any]], tuple[NDArray[Any], NDArray[np.int64]]]


@dataclass(frozen=True, kw_only=True)
class Person:
    """One person's examples, in the order of the file."""

    name: str
    x: NDArray[Any]
    y: NDArray[np.int64]


def read_leaf(
    path: str, convert: Convert, test_fraction: float, *, gap: int = 0, rng: np.random.Generator | None = None
) -> tuple[Arrays, Arrays]:
    """Training and test part with owners numbered in the order of their names.

    Where this function splits: in the order of `rng` if it is given, else in file order with `gap`
    examples dropped between the parts, because neighbouring text windows overlap.
    """
    root = Path(path).expanduser()
    if (root / "train").is_dir() and (root / "test").is_dir():
        train, test = list(_people(root / "train", convert)), list(_people(root / "test", convert))
    else:
        train, test = [], []
        for p in _people(root, convert):
            order = np.arange(len(p.y)) if rng is None else rng.permutation(len(p.y))
            cut = len(order) - round(test_fraction * len(order))
            for part, index in ((train, order[:cut]), (test, order[cut + gap :])):
                if len(index):
                    part.append(Person(name=p.name, x=p.x[index], y=p.y[index]))
    if not train or not test:
        raise UserError(
            f"{root} has no examples for {'training' if not train else 'testing'}",
            hint="give LEAF's folder with train/ and test/, or with *.json files of enough examples",
        )
    numbers = {n: i for i, n in enumerate(sorted({p.name for p in (*train, *test)}))}
    return _join(train, numbers), _join(test, numbers)


def _people(folder: Path, convert: Convert) -> Iterator[Person]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UserError(
            f"no *.json in {folder}", hint="run LEAF's preprocessing and give the folder that holds its output"
        )
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            for name in content["users"]:
                raw = content["user_data"][name]
                if len(raw["x"]) != len(raw["y"]):
                    raise ValueError(f"{name} has {len(raw['x'])} x and {len(raw['y'])} y")
                if raw["y"]:
                    x, y = convert(raw["x"], raw["y"])
                    yield Person(name=str(name), x=x, y=y)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{file} is not LEAF's JSON: {error!r}",
                hint="see the head of fl/datasets/_leaf.py for the format",
            ) from error


def _join(people: list[Person], numbers: dict[str, int]) -> Arrays:
    owner = np.repeat([numbers[p.name] for p in people], [len(p.y) for p in people])
    return Arrays(
        x=np.concatenate([p.x for p in people]),
        y=np.concatenate([p.y for p in people]),
        owner=owner.astype(np.int64),
    )
