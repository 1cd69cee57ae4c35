"""NPZ: your own arrays, from one file that numpy.savez wrote.

    numpy.savez("mine.npz", x_train=..., y_train=..., x_test=..., y_test=...)

x is uint8 in 0..255 or floating point in [0, 1], shaped [N, H, W] or [N, channels, H, W], or with `layout: hwc`
[N, H, W, channels]: which of them it is is declared, never guessed. Or x is tokens, whole numbers shaped [N, T],
or floating point of another shape, such as a table [N, F] or volumes [N, channels, D, H, W]: models see these
less their mean over their deviation, in each column or channel of x_test, which no client holds. With
`layout: bags` x is [N, rows, F], several rows of features an example, which models see as they are.

What y is follows from its shape, or is declared as `task`. Whole numbers from 0 or names as text, shaped [N]:
every different one in y_train is a class. 0 or 1, shaped [N, L]: several findings. Floating point [N]: a number.
Whole numbers of the shape of x without its channels: a class for each place. Times and events, floating point
[N, 2], are declared: `task: survival`. Optional: `classes`, names as text, of which y is then the place, from 0,
or of findings; `owner_train` and `owner_test`, the natural client of each example. Nothing is unpickled.
"""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import MOST_CHANNELS, Arrays, Data, Dataset
from fedaudit.fl.datasets._arrays import moments
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.task import Task, choose_task, load_task
from fedaudit.fl.tasks.classify import Classify

_MOST_CLASSES = 10_000  # a larger label without `classes` is a mistake, or not a label


class NPZ(Dataset):
    title = "Arrays of your own"
    source = ""

    @settings
    class Config:
        path: str = Field(description="the file that numpy.savez wrote")
        layout: Literal["chw", "hwc", "bags"] | None = Field(
            default=None,
            description="where channels stand in images: chw or hwc; null: chw, if that can be. bags: an example "
            "is several rows of features, and no image",
        )
        task: str | None = Field(
            default=None, description="what labels are, a name of fl/tasks/; null: what their shape allows"
        )

    def load(self) -> Data:
        path = Path(self.config.path).expanduser()
        arrays = _read(path)
        names = tuple(map(str, arrays["classes"].tolist())) if "classes" in arrays else ()
        task = _find_task(arrays, self.config.task)
        if not task.has_classes:
            labels = [_read_other_labels(arrays, f"y_{part}", task) for part in ("train", "test")]
            return self._pack(arrays, labels, names, task)
        text = [part for part in ("train", "test") if arrays[f"y_{part}"].dtype.kind == "U"]
        if len(text) == 1:
            other = "test" if text == ["train"] else "train"
            raise _describe_misfit(
                f"y_{other}", "numbers", f"names as in y_{text[0]}", "write the labels of both parts alike"
            )
        if text:
            names = _as_numbers(arrays, names)
        labels = [_read_labels(arrays, f"y_{part}", len(names)) for part in ("train", "test")]
        if unseen := sorted(set(labels[1].tolist()) - set(labels[0].tolist())):
            shown = names[unseen[0]] if names else unseen[0]
            hint = "number the classes of both parts alike, or leave out of the test what nobody trains on"
            raise _describe_misfit("y_test", f"the class {shown!r}", "classes that y_train has", hint)
        if not names:
            numbers = np.unique(labels[0])
            names, labels = tuple(map(str, numbers)), [np.searchsorted(numbers, y) for y in labels]
        if len(names) < 2:
            raise _describe_misfit(
                "y_train", f"one class, {names[0]!r}", "at least two, or there is nothing to learn"
            )
        return self._pack(arrays, labels, names, task)

    def _pack(
        self,
        arrays: Mapping[str, NDArray[Any]],
        labels: Sequence[NDArray[Any]],
        names: tuple[str, ...],
        task: Task,
    ) -> Data:
        layout = self.config.layout
        train, test = (_take(arrays, part, y, layout) for part, y in zip(("train", "test"), labels, strict=True))
        if train.x.shape[1:] != test.x.shape[1:] or train.x.dtype != test.x.dtype:
            raise _describe_misfit(
                "x_test",
                f"{test.x.dtype} {list(test.x.shape[1:])} an example",
                f"{train.x.dtype} {list(train.x.shape[1:])} as in x_train",
                "bring both parts to one size and one number of channels",
            )
        about = "The arrays of a NumPy file."
        if train.x.dtype == np.int64 or train.x.ndim == 3:
            return Data(train=train, test=test, classes=names, task=task, about=about)
        mean, std = moments(train.x if train.x.ndim == 4 else test.x)
        return Data(train=train, test=test, classes=names, task=task, mean=mean, std=std, about=about)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("it holds one array; use numpy.savez, not numpy.save")
        with file:
            arrays = {k: file[k] for k in file.files}
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        what, hint = str(error), "write it with numpy.savez; arrays of Python objects are refused"
        if "pickled" in what:  # what numpy says of every file that it does not know
            what = "it is no archive of arrays, or a damaged one"
        elif "Object arrays" in what:
            what = "it holds an array of Python objects, as numpy makes of images or labels of unequal length"
            hint = "bring all images to one size, then make one array of them: numpy.stack(images)"
        raise UserError(f"cannot read {path}: {what}", hint=hint) from error
    missing = [k for k in ("x_train", "y_train", "x_test", "y_test") if k not in arrays]
    if missing:
        raise UserError(
            f"{path} has no {missing[0]}; it has {', '.join(arrays) or 'nothing'}",
            hint="it needs x_train, y_train, x_test and y_test",
        )
    return arrays


def _find_task(arrays: Mapping[str, NDArray[Any]], declared: str | None) -> Task:
    """What the labels of the training part are: as declared, else as their shape allows."""
    x, y = arrays["x_train"], arrays["y_train"]
    if declared:
        found: Task = load_task(declared, "federation.dataset.task")()
        return found
    if y.ndim == 1 and y.dtype.kind != "f":
        return Classify()
    if y.ndim == 2 and y.dtype.kind in "biuf" and len(y) and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all():
        hint = "use y_train.argmax(1); where they are findings of which each has one, say task: several"
        raise _describe_misfit("y_train", f"{list(y.shape)}, a column a class", "one number an example", hint)
    if y.ndim == 2 and y.shape[1] == 1:
        raise _describe_misfit(
            "y_train", f"{y.dtype} {list(y.shape)}", "one label an example", "use y_train.ravel()"
        )
    has_channels = x.ndim != 3 or y.ndim != 3  # images [N, H, W] have none
    return choose_task(y, x.shape[1:] if has_channels else (1, *x.shape[1:]))


def _read_other_labels(arrays: Mapping[str, NDArray[Any]], key: str, task: Task) -> NDArray[Any]:
    """Labels that are no classes, as the task has them."""
    y = arrays[key]
    if wrong := task.misfit(y, len(arrays[key.replace("y_", "x_")])):
        raise _describe_misfit(key, *wrong.split(", expected ", 1))
    if not len(y):
        raise _describe_misfit(key, "no examples", "some of each part")
    return y.astype(np.float32 if y.dtype.kind == "f" else np.int64)


def _as_numbers(arrays: dict[str, NDArray[Any]], names: tuple[str, ...]) -> tuple[str, ...]:
    """Labels as text become numbers, in place: by their place in `classes`, else among all sorted names."""
    texts = {part: arrays[f"y_{part}"].astype(str) for part in ("train", "test")}
    names = names or tuple(sorted({str(t) for found in texts.values() for t in found.tolist()}))
    place = {name: i for i, name in enumerate(names)}
    for part, found in texts.items():
        if unknown := [t for t in found.ravel().tolist() if t not in place]:
            raise _describe_misfit(
                f"y_{part}", f"the label {unknown[0]!r}", f"one of `classes`: {', '.join(names[:9])}"
            )
        arrays[f"y_{part}"] = np.vectorize(place.__getitem__, otypes=[np.int64])(found)
    return names


def _read_labels(arrays: Mapping[str, NDArray[Any]], key: str, classes: int) -> NDArray[np.int64]:
    y = arrays[key]
    if y.ndim != 1 or y.dtype.kind not in "biu" or not len(y):
        hint = f"use {key}.ravel()" if y.ndim > 1 else "keep some examples of each part" if not len(y) else ""
        raise _describe_misfit(key, f"{y.dtype} {list(y.shape)}", "whole numbers [N], at least one", hint)
    if y.min() < 0 or y.max() >= (classes or _MOST_CLASSES):
        raise _describe_misfit(
            key, f"labels from {y.min()} to {y.max()}", f"0 to {(classes or _MOST_CLASSES) - 1}"
        )
    return y.astype(np.int64)


def _take(arrays: Mapping[str, NDArray[Any]], part: str, y: NDArray[Any], layout: str | None) -> Arrays:
    key, x = f"x_{part}", arrays[f"x_{part}"]
    if len(x) != len(y):
        raise _describe_misfit(key, f"{len(x)} examples", f"{len(y)} as in y_{part}")
    owner = arrays.get(f"owner_{part}")
    if owner is not None and (owner.shape != (len(y),) or owner.dtype.kind not in "iu"):
        raise _describe_misfit(f"owner_{part}", f"{owner.dtype} {list(owner.shape)}", f"whole numbers [{len(y)}]")
    return Arrays(x=_read_examples(key, x, layout), y=y, owner=None if owner is None else owner.astype(np.int64))


def _read_examples(key: str, x: NDArray[Any], layout: str | None) -> NDArray[Any]:
    if x.ndim == 2 and x.dtype.kind in "iu" and x.size:
        if x.min() < 0:
            raise _describe_misfit(key, f"token {x.min()}", "tokens >= 0")
        return x.astype(np.int64)
    if x.dtype.kind in "US":
        raise _describe_misfit(
            key, "text", "tokens: raw text is not supported", "give each word or sign a whole number, [N, T]"
        )
    if layout == "bags" and (x.ndim != 3 or x.dtype.kind != "f"):
        raise _describe_misfit(
            key, f"{x.dtype} {list(x.shape)}", "floating-point [N, rows, features]", "leave layout out"
        )
    if x.ndim in ((3,) if layout == "bags" else (2, 5)) and x.dtype.kind == "f" and x.size:
        if not np.isfinite(x).all():
            hint = "fill in what is missing, by columns of rows that no client holds"
            raise _describe_misfit(key, "NaN or infinite values", "finite ones", hint)
        return x.astype(np.float32)
    if x.ndim in (3, 4) and x.dtype.kind in "iu" and x.dtype != np.uint8:
        raise _describe_misfit(
            key, f"{x.dtype} {list(x.shape)}", "uint8 or floats", f"save {key}.astype('uint8') if it is 0..255"
        )
    if x.ndim not in (3, 4) or not (x.dtype == np.uint8 or x.dtype.kind == "f") or 0 in x.shape:
        raise _describe_misfit(
            key,
            f"{x.dtype} {list(x.shape)}",
            "uint8 or floats [N, H, W] or [N, channels, H, W], a table [N, F], or tokens [N, T]",
        )
    if x.dtype.kind == "f":
        if not np.isfinite(x).all():
            raise _describe_misfit(key, "NaN or infinite values", "finite ones")
        if x.min() < 0 or x.max() > 1:
            found = f"values from {x.min():g} to {x.max():g}"
            low, high = f"{key}.min()", f"{key}.max()"
            hint = f"divide {key} by 255 before saving it"
            if x.min() < 0:
                hint = f"save images before they are normalised, or ({key} - {low}) / ({high} - {low})"
            if x.ndim == 3:
                hint += "; if an example is rows of features, say layout: bags in the config"
            raise _describe_misfit(key, found, "0 to 1", hint)
    x = x[:, None] if x.ndim == 3 else _move_channels(key, x, layout)
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)


def _move_channels(key: str, x: NDArray[Any], layout: str | None) -> NDArray[Any]:
    """[N, C, H, W]; refuses to guess where the first axis cannot be channels."""
    if layout == "hwc":
        if x.shape[3] > MOST_CHANNELS >= x.shape[1]:
            found = f"{list(x.shape)}, which with layout: hwc would be images of {x.shape[3]} channels"
            raise _describe_misfit(
                key, found, "[N, H, W, channels]", "leave layout out: the channels stand first"
            )
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    if layout is None and x.shape[1] > MOST_CHANNELS:
        last = x.shape[3] <= MOST_CHANNELS
        raise _describe_misfit(
            key,
            f"{list(x.shape)}, which would be images of {x.shape[1]} channels",
            "[N, channels, H, W]",
            "if the channels stand last, say layout: hwc in the config"
            if last
            else "if these are channels, say layout: chw in the config",
        )
    return x


def _describe_misfit(key: str, found: str, expected: str, hint: str = "") -> UserError:
    return UserError(
        f"dataset npz: {key} has {found}, expected {expected}",
        hint=hint or "the head of fl/datasets/npz.py says what each array must be",
    )
