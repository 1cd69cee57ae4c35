"""LEAF's JSON files (Caldas et al. 2018, arXiv:1812.01097): examples by the people they come from.

    {"users": ["a", ...], "num_samples": [3, ...], "user_data": {"a": {"x": [...], "y": [...]}}}

A data set is a folder with train/*.json and test/*.json, as LEAF's own split leaves it; or only
*.json, of which each person's last `test_fraction` is held out here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import moments
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.strict_json import parse_json

PLUGINS = ("femnist", "shakespeare")

# raw x and y of one person -> arrays; raises ValueError where they are not what they should be
Convert = Callable[[list[Any], list[Any]], tuple[NDArray[Any], NDArray[np.int64]]]

CLASSES = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

# LEAF, models/utils/language_utils.py
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80  # characters a sequence; by chance as many as there are letters


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
        train, test = list(_read_people(root / "train", convert)), list(_read_people(root / "test", convert))
    else:
        train, test = [], []
        for p in _read_people(root, convert):
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


def _read_people(folder: Path, convert: Convert) -> Iterator[Person]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UserError(
            f"no *.json in {folder}", hint="run LEAF's preprocessing and give the folder that holds its output"
        )
    for file in files:
        try:
            content = parse_json(file.read_text(encoding="utf-8"))
            for name in content["users"]:
                raw = content["user_data"][name]
                if len(raw["x"]) != len(raw["y"]):
                    raise ValueError(f"{name} has {len(raw['x'])} x and {len(raw['y'])} y")
                if raw["y"]:
                    x, y = convert(raw["x"], raw["y"])
                    yield Person(name=str(name), x=x, y=y)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{file} is not LEAF's JSON: {error!r}", hint="see the head of fl/datasets/leaf.py for the format"
            ) from error


def _join(people: list[Person], numbers: dict[str, int]) -> Arrays:
    owner = np.repeat([numbers[p.name] for p in people], [len(p.y) for p in people])
    return Arrays(
        x=np.concatenate([p.x for p in people]),
        y=np.concatenate([p.y for p in people]),
        owner=owner.astype(np.int64),
    )


class FEMNIST(Dataset):
    """FEMNIST: handwritten letters and digits of 28 x 28 grey pixels, by writer, in 62 classes.

    LEAF (Caldas et al. 2018, arXiv:1812.01097). Read from `path`, the JSON files of LEAF's
    preprocessing; see the head of this file. Ink is dark on white, as in LEAF.
    """

    title = "FEMNIST"
    holds = "public"
    source = "LEAF, arXiv:1812.01097"

    @settings
    class Config:
        path: str = Field(description="folder of the JSON files that LEAF's preprocessing wrote")
        test_fraction: ProperShare = Field(
            default=0.2,
            description="share of each writer's images held out for testing, where LEAF has not split",
        )

    def load(self) -> Data:
        # the split belongs to the data set, so it does not depend on the run's seed
        rng = np.random.default_rng(0)
        train, test = read_leaf(self.config.path, _convert_pixels, self.config.test_fraction, rng=rng)
        mean, std = moments(train.x)
        return Data(
            train=train,
            test=test,
            classes=CLASSES,
            mean=mean,
            std=std,
            about="Handwritten letters and digits of 28 x 28 grey pixels, by writer (FEMNIST).",
        )


def _convert_pixels(x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    pixels, labels = np.array(x, dtype=np.float32), np.array(y)
    if pixels.shape != (len(y), 784) or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError(f"x is {list(pixels.shape)}, expected rows of 784 numbers from 0 to 1")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise ValueError("y holds something else than whole numbers from 0 to 61")
    return pixels.reshape(-1, 1, 28, 28), labels.astype(np.int64)


class Shakespeare(Dataset):
    """Shakespeare: 80 characters of a role's lines, and the character that follows.

    LEAF (Caldas et al. 2018, arXiv:1812.01097). Read from `path`, the JSON files of LEAF's
    preprocessing; see the head of this file. Tokens and classes are the 80 characters that LEAF knows;
    with `vocabulary: 81`, as in FedRS, an 81st stands for any other.

    LEAF's split by sample draws windows at random, and neighbours overlap in 79 characters, so that most
    of its test part is in its training part. For an audit of membership give the unsplit files: each
    role's last windows are then held out, none overlapping those before.
    """

    title = "Shakespeare"
    holds = "public"
    source = "LEAF, arXiv:1812.01097"

    @settings
    class Config:
        path: str = Field(description="folder of the JSON files that LEAF's preprocessing wrote")
        vocabulary: Literal[80, 81] = Field(
            default=80, description="tokens: LEAF's 80 characters, or one more for all others as in FedRS"
        )
        test_fraction: ProperShare = Field(
            default=0.2, description="share of each role's windows held out for testing, where LEAF has not split"
        )

    def load(self) -> Data:
        train, test = read_leaf(self.config.path, self._convert, self.config.test_fraction, gap=LENGTH - 1)
        names = [repr(c)[1:-1] if c == "\n" else c for c in LETTERS]
        return Data(
            train=train,
            test=test,
            classes=tuple(names + ["other"] * (self.config.vocabulary - 80)),
            about="80 characters of a role of Shakespeare's and the next one (LEAF).",
        )

    def _convert(self, x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if any(len(text) != LENGTH for text in x) or any(len(c) != 1 for c in y):
            raise ValueError(f"x must hold texts of {LENGTH} characters, y single ones")
        return np.array([self._encode_text(text) for text in x]), self._encode_text("".join(y))

    def _encode_text(self, text: str) -> NDArray[np.int64]:
        tokens = np.array([LETTERS.find(c) for c in text], dtype=np.int64)
        unknown = tokens < 0
        if self.config.vocabulary == 80 and unknown.any():
            raise ValueError(f"unknown character {text[int(unknown.argmax())]!r}; set vocabulary: 81 to allow it")
        tokens[unknown] = len(LETTERS)
        return tokens
