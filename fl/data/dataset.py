"""The contract of a data set: labelled examples in a training and a test part."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.data.columns import Columns
from fedaudit.fl.data.tokens import Canary, Tokens
from fedaudit.fl.kinds import Need
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.records import require_returned
from fedaudit.fl.runtime.special_files import refuse_special
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.tasks.text import Text


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """Images float32 [N, C, H, W] in [0, 1], tokens int64 [N, T] or other numbers float32 [N, ...].

    Rows of a table whose columns are known are float64 [N, F] in raw units, as fl/data/columns.py says.

    Labels [N, ...] are as the task has them: int64 [N] in 0..classes-1 of classification.

    `owner` is the natural client of each example (LEAF: the writer or role), where the data has one.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    owner: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def repeats_owners(self) -> bool:
        """Whether somebody owns several examples, which then look alike."""
        return self.owner is not None and len(np.unique(self.owner)) < len(self.owner)

    def take(self, index: NDArray[np.int64]) -> "Arrays":
        owner = None if self.owner is None else self.owner[index]
        return Arrays(x=self.x[index], y=self.y[index], owner=owner)


@dataclass(frozen=True, kw_only=True)
class Data:
    """One loaded data set. Models see (x - mean) / std, channel by channel; everyone else sees x.

    Of a table whose columns are known models see what these say.
    """

    train: Arrays
    test: Arrays
    classes: tuple[str, ...] = ()  # names, one a label, a finding, or a class of places; none of numbers
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: Literal["none", "crop_flip"] = "none"  # of training batches only
    about: str = ""  # one sentence for the report: what the images are and where they came from
    schema: Tokens | None = None  # what token ids stand for; None: the examples are no text, or nobody said
    columns: Columns | None = None  # what numbers of a row stand for; None: no table, or nobody said
    task: Task = field(default_factory=Classify)  # what is wanted for an example; its case says so of texts
    canaries: tuple[Canary, ...] = ()  # planted secrets and their controls, for how much a model remembers

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.train.x.shape[1:])

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example as a network is given it."""
        return self.shape if self.columns is None else (self.columns.width,)

    @property
    def is_text(self) -> bool:
        """Whether examples are tokens."""
        return self.train.x.dtype.kind in "iu"

    @property
    def gives(self) -> frozenset[Need]:
        """What an attack may need of examples, and finds in these."""
        is_text, is_language = self.is_text, isinstance(self.task, Text)
        found: dict[Need, bool] = {
            "classes": self.task.has_classes,
            "groups": bool(self.groups),
            "answers": not is_language,
            "tokens": is_text,
            "next tokens": is_language,
            "numbers": not is_text,
            "rows": not is_text and len(self.shape) == 1,
            "images": not is_text and len(self.shape) == 3,
            "one scale": is_text or len(self.shape) > 1,
        }
        return frozenset(need for need, is_there in found.items() if is_there)

    @property
    def is_scaled_by_clients(self) -> bool:
        """Whether clients say what their columns are like, so that networks are given them on one scale."""
        return self.columns is not None and self.columns.by == "clients"

    @property
    def width(self) -> int:
        """How many numbers a network gives for an example, or for each place of it."""
        return len(self.classes) or max(self.task.width(part.y) for part in (self.train, self.test))

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that labels make; none where they make none."""
        return self.task.name_groups(self.classes)

    def group(self, arrays: Arrays) -> NDArray[np.int64]:
        """[N] which group each example is of; all are of the first where labels make none."""
        found = self.task.groups(arrays.y) if len(arrays) else None
        return np.zeros(len(arrays), np.int64) if found is None else found


FILES = ("path", "tokenizer", "schema")  # settings that name files or folders of the user
MOST_CHANNELS = 4  # of images; more in the first place and these in the last: the channels stand last


class Dataset(Plugin):
    """Subclasses write load(). Nothing is downloaded unless the user's config says `download: true`."""

    title: str  # "Fashion-MNIST"
    holds: ClassVar[Literal["public", "invented", "private"]] = (
        "private"  # whose data; only private ones are redacted
    )

    @abstractmethod
    def load(self) -> Data:
        """Read the data; raises UserError saying where it looked and how to get it."""

    def list_files(self) -> Sequence[Path]:
        """Files, and folders with all below them, that load() opens or looks for outside of this package."""
        named = (getattr(self.config, key, None) for key in FILES)
        return [Path(str(name)).expanduser() for name in named if name]


def read_data(dataset: Dataset) -> Data:
    """The data of a data set.

    Raises UserError where its files are pipes or devices, or its arrays not what the contract says, whoever
    wrote load().
    """
    for file in dataset.list_files():
        refuse_special(file)
    data, title = dataset.load(), dataset.title
    require_returned(dataset, Dataset, "load", data)
    for part, arrays in (("train", data.train), ("test", data.test)):
        _check_examples(f"dataset {title!r}: {part}.x is", arrays.x, data)
        _check_labels(f"dataset {title!r}: {part}.y is", arrays, data.task, data.classes)
    return replace(data, task=data.task.learn_scale(data.test.y))  # which no client holds


def _check_examples(where: str, x: NDArray[Any], data: Data) -> None:
    shape, known = list(x.shape), data.schema
    if data.columns is not None:
        if wrong := data.columns.misfit(x):
            raise UserError(f"{where} {wrong}", hint="its columns say what rows hold")
        return
    if not (x.ndim == 2 and x.dtype == np.int64) and (x.dtype != np.float32 or x.ndim < 2):
        raise UserError(
            f"{where} {x.dtype} {shape}, expected float32 [N, ...], such as [N, channels, height, width], or "
            "tokens, int64 [N, T]",
            hint="convert it in load(): x.astype(np.float32), in [0, 1] of images",
        )
    if x.ndim == 4:
        if shape[1] > MOST_CHANNELS >= shape[3]:
            raise UserError(
                f"{where} {shape}: images of {shape[1]} channels, expected [N, channels, height, width]",
                hint="the channels seem to stand last: return x.transpose(0, 3, 1, 2)",
            )
        if x.size and not (x.min() >= 0 and x.max() <= 1):
            raise UserError(
                f"{where} from {x.min():g} to {x.max():g}, expected numbers in [0, 1]",
                hint="divide bytes by 255; give mean and std for what models see",
            )
    elif not np.isfinite(x).all():
        raise UserError(
            f"{where} NaN or infinite in places, expected finite numbers",
            hint="fill in what is missing in load()",
        )
    if known is not None and x.size and not 0 <= x.min() <= x.max() < len(known.pieces):
        raise UserError(
            f"{where} tokens from {x.min()} to {x.max()}, and its vocabulary has {len(known.pieces):,}",
            hint="number tokens from 0, and give schema.pieces one entry for each",
        )


def _check_labels(where: str, arrays: Arrays, task: Task, classes: tuple[str, ...]) -> None:
    y = arrays.y
    if len(y) != len(arrays.x):
        raise UserError(
            f"{where} of {len(y)} examples, and x of {len(arrays.x)}", hint="give a label for each example"
        )
    if wrong := task.misfit(y, len(arrays.x)):
        raise UserError(f"{where} {wrong}", hint=f"the task of the data is {task!r}: {task.words}")
    if y.dtype not in (np.int64, np.float32):
        raise UserError(
            f"{where} {y.dtype}, expected {'float32' if y.dtype.kind == 'f' else 'int64'}",
            hint="convert it in load(): y.astype(...)",
        )
    if not task.fits_names(y, len(classes)):
        span = f", {y.min()} to {y.max()}," if y.size and y.dtype.kind in "iu" else ""
        raise UserError(
            f"{where} {y.dtype} {list(y.shape)}{span} and there are {len(classes)} names of classes",
            hint="give a name in `classes` for each",
        )
