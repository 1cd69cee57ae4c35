"""Truth: what clients hold, and examples of the auditor's own, as their files and as the run keeps them.

A folder with one NAME.npz a client (arrays x [N, ...] in [0, 1] or bytes, and y [N]), or NAME/CLASS/*.png; NAME
is the node's name in the inbox, what `identities` of the subject says of it, or client-3. Or data.npz and
indices.json, {NAME: [rows]}. own.npz or own/ are the auditor's own examples, of the same kind and of no client.
A folder heldout holds, in the same forms, examples of clients' own distributions that they did not train on.
"""

import unicodedata
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedaudit.audit.case.reading import survey
from fedaudit.audit.settings.subject import ExampleLayout, RecordedSubject
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.images import (
    ClassFolders,
    describe_strays,
    is_grey,
    is_stray,
    list_class_folders,
    read_image,
)
from fedaudit.fl.data.population import content
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.runtime.task import Task, load_task

OWN, NOBODY = "own", -1  # truth of the auditor's own examples, and whose they are
HELD_OUT = "heldout"  # folder of what clients did not train on
MOST_BYTES = 16 * 2**30
MOST_CLASSES = 1_000_000


@dataclass(frozen=True)
class TruthFile:
    """Examples, and whose they are: a client's number, or -1 for the auditor's own; [N] each.

    `held_out`: which of a client's own it did not train on.
    """

    examples: Arrays
    owner: NDArray[np.int64]
    held_out: NDArray[np.bool_]

    def to_bytes(self) -> bytes:
        arrays = {"x": self.examples.x, "y": self.examples.y, "owner": self.owner, "held_out": self.held_out}
        return bytes(save(arrays))

    @classmethod
    def from_bytes(cls, data: bytes) -> "TruthFile":
        found = load(data)
        none = np.zeros(len(found["y"]), bool)  # as files were written before
        return cls(Arrays(x=found["x"], y=found["y"]), found["owner"], found.get("held_out", none))

    @classmethod
    def none(cls, stated: ExampleLayout) -> "TruthFile":
        nothing, shape = np.zeros(0, np.int64), tuple(stated.shape)
        kind: Any = np.int64 if len(shape) == 1 and not stated.is_table else np.float32
        kind = np.float64 if stated.columns else kind
        return cls(Arrays(x=np.zeros((0, *shape), kind), y=nothing), nothing, nothing.astype(bool))


def load_truth(folder: Path, subject: RecordedSubject, nodes: Mapping[str, str]) -> TruthFile:
    """The folder's examples; `nodes`: client/3 -> node. Raises UserError that names what is wrong."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}", hint="--truth is a folder with one NAME.npz for each client")
    survey(folder, hard_links=True)
    whose = _map_names(subject, nodes)
    trained = _load_parts(folder, subject.examples, whose | {OWN: NOBODY})
    if not trained:
        raise UserError(f"{folder} holds no truth", hint="write NAME.npz with arrays x and y for each client")
    missing = [t for t in subject.identities.values() if _compose(t) not in trained]
    if missing:
        raise UserError(f"identities names {missing[0]!r:.60}, and {folder} has no such truth", hint="add it")
    beside = folder / HELD_OUT
    held_out = _load_parts(beside, subject.examples, whose) if beside.is_dir() else {}
    _refuse_trained(beside, held_out, trained)
    parts = [*trained.values(), *held_out.values()]
    return TruthFile(
        Arrays(x=np.concatenate([p.x for p in parts]), y=np.concatenate([p.y for p in parts])),
        np.concatenate([np.full(len(p.y), p.owner, np.int64) for p in parts]),
        np.repeat([False, True], [sum(len(p.y) for p in some.values()) for some in (trained, held_out)]),
    )


class _Part(NamedTuple):
    """Examples under one name."""

    owner: int
    x: NDArray[Any]
    y: NDArray[Any]


def _load_parts(folder: Path, examples: ExampleLayout, whose: Mapping[str, int]) -> dict[str, _Part]:
    """What a folder has under each name, in their order; `whose`: all names that there are."""
    found = {_compose(name): part for name, part in _find_parts(folder, examples)}
    if unknown := sorted(found.keys() - whose.keys()):
        raise UserError(
            f"{folder}: truth of {unknown[0]!r:.60}, and no client of the inbox has that name",
            hint="name it after a node, or say in `identities` of the subject which node it is",
        )
    return {
        name: _Part(whose[name], *_check_examples(folder / name, x, y, examples))
        for name, (x, y) in sorted(found.items())
    }


def _refuse_trained(folder: Path, held_out: Mapping[str, _Part], trained: Mapping[str, _Part]) -> None:
    """Raise UserError for a held-out example that some client holds: luck is that of who was not trained on."""
    if not held_out:
        return
    members = {content(x): name for name, part in trained.items() if part.owner != NOBODY for x in part.x}
    for name, part in held_out.items():
        for i, x in enumerate(part.x):
            if holder := members.get(content(x)):
                raise UserError(
                    f"{folder / name}: example {i} is held out, and client {holder!r:.60} holds the same",
                    hint=f"leave it out of {HELD_OUT}: held-out examples are those that nobody trained on",
                )


def load_examples(path: Path) -> Arrays:
    """One NAME.npz by itself, whatever the shape of its examples. Raises UserError that names what is wrong."""
    arrays = _load_npz(path)
    x, y = arrays["x"], arrays["y"]
    if y.dtype.kind not in "iu" or y.shape != (len(x),) or (y.size and y.min() < 0):
        raise UserError(
            f"{path}: y is no label from 0 for each of {len(x)} examples", hint="whole numbers, one each"
        )
    return Arrays(x=x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x, y=y.astype(np.int64))


def example_shape(folder: Path) -> list[int]:
    """Of the first example in a folder of truth. Raises UserError where there is none that says it."""
    if folder.is_dir():
        survey(folder, hard_links=True)
    for path in sorted(folder.glob("*.npz")):
        return list(map(int, _load_npz(path)["x"].shape[1:]))
    for path, _ in chain.from_iterable(found.images for found in list_image_folders(folder).values()):
        height, width, channels = read_image(path, grayscale=False).shape
        return [1 if is_grey(path) else channels, height, width]
    raise UserError(
        f"{folder} holds no NAME.npz and no NAME/CLASS/*.png that says a shape",
        hint="state examples.shape by hand",
    )


def list_image_folders(folder: Path) -> dict[str, ClassFolders]:
    """Name of truth -> its folder of classes, of those that are given as images."""
    below = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = {path.name: list_class_folders(path) for path in below if path.name != HELD_OUT}
    return {name: one for name, one in found.items() if not is_stray(name)}


def list_classes(folder: Path) -> list[str]:
    """Names of the folders with a class's images, in torchvision's order; empty where there are none."""
    return sorted({name for found in list_image_folders(folder).values() for _, name in found.images})


def describe_left_out(folder: Path | None) -> list[str]:
    """What of a folder of truth is not read, a sentence for each of its folders."""
    if folder is None:
        return []
    told = {folder: [path.name for path in sorted(folder.glob("*")) if is_stray(path.name)]}
    told |= {folder / name: found.left_out for name, found in list_image_folders(folder).items()}
    return [f"{where}: {describe_strays(names)}" for where, names in told.items() if names]


def find_label_range(folder: Path) -> tuple[int, int]:
    """The least label in a folder of truth, and one more than the greatest; zeros where no NAME.npz has one.

    Raises UserError for a label that no classifier has an output for.
    """
    found = set[int]()
    for path in sorted(folder.glob("*.npz")):
        labels = _load_npz(path)["y"]
        if labels.size and labels.dtype.kind in "iu":
            found |= {int(labels.min()), int(labels.max())}
        if max(found, default=0) >= MOST_CLASSES:
            raise UserError(
                f"{path} has the label {max(found):,}: labels count classes from 0",
                hint=f"number the classes 0, 1, 2 and so on, {MOST_CLASSES:,} at most",
            )
    return (min(found), max(found) + 1) if found else (0, 0)


def _map_names(subject: RecordedSubject, nodes: Mapping[str, str]) -> dict[str, int]:
    """Name of truth -> client."""
    known = {node: int(party.partition("/")[2]) for party, node in nodes.items()}
    if unknown := [n for n in subject.identities if n not in known]:
        raise UserError(
            f"identities names node {unknown[0]!r:.60}, which the inbox does not know",
            hint=f"it knows {', '.join(sorted(known)[:5]) or 'no nodes'}",
            key="subject.identities",
        )
    by_number = {f"client-{k}": k for k in known.values()}
    own = {name: k for name, k in known.items() if name not in subject.identities}
    named = by_number | own | {truth: known[node] for node, truth in subject.identities.items()}
    return {_compose(name): k for name, k in named.items()}


def _compose(name: str) -> str:
    """Letters and their accents as one character each: file systems differ in how they keep them."""
    return unicodedata.normalize("NFC", name)


def _find_parts(folder: Path, examples: ExampleLayout) -> Any:
    indices = folder / "indices.json"
    if indices.is_file():
        arrays = _load_npz(folder / "data.npz")
        try:
            told = parse_json(indices.read_bytes())
            for name, rows in told.items():
                chosen = np.asarray(rows, np.int64).reshape(-1)
                yield str(name), (arrays["x"][chosen], arrays["y"][chosen])
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise UserError(f"{indices} is not valid: {error}", hint="write {NAME: [row, row, ...]}") from error
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npz" and (path.stem != "data" or not indices.is_file()):
            arrays = _load_npz(path)
            yield path.stem, (arrays["x"], arrays["y"])
        elif path.is_dir() and path.name != HELD_OUT and not is_stray(path.name):
            yield path.name, _load_images(path, examples)


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_BYTES / 2**30:g} GiB")
        with np.load(path, allow_pickle=False) as file:
            if lacks := {"x", "y"}.difference(file.files):
                raise ValueError(f"it has no array {min(lacks)!r}")
            arrays = {k: file[k] for k in ("x", "y")}
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, MemoryError) as error:
        raise UserError(
            f"cannot read {path}: {error}",
            hint="write it with numpy.savez(path, x=..., y=...); arrays of Python objects are refused",
        ) from error
    return arrays


def _load_images(folder: Path, examples: ExampleLayout) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images of a folder with one folder a class."""
    xs, ys = [], []
    for path, label in list_class_folders(folder).images:
        if label not in examples.classes:
            raise UserError(f"{path}: no class is called {label!r:.60}", hint="folders are named as the classes")
        xs.append(read_image(path, grayscale=examples.shape[0] == 1).transpose(2, 0, 1))
        ys.append(examples.classes.index(label))
    if len({x.shape for x in xs}) != 1:
        raise UserError(f"{folder} holds no images, or images of different sizes", hint="resize them alike")
    return np.stack(xs), np.array(ys, np.int64)


def _check_examples(
    path: Path, x: NDArray[Any], y: NDArray[Any], examples: ExampleLayout
) -> tuple[NDArray[Any], NDArray[Any]]:
    """As the contract of examples wants them; the layout is never guessed."""
    shape = tuple(examples.shape)
    if x.shape[1:] != shape:
        turned = sorted(x.shape[1:]) == sorted(shape)
        raise UserError(
            f"{path}: examples are {list(x.shape[1:])}, and the subject says {list(shape)}",
            hint="the order of the axes differs: give them as [channels, height, width]"
            if turned
            else "give every example in the stated shape; a grey image has one channel, x[:, None]",
        )
    if (table := examples.table) is not None:
        x = x.astype(np.float64) if x.dtype.kind in "iuf" else x
        if wrong := table.misfit(x):
            raise UserError(
                f"{path}: rows are {wrong}", hint="examples.columns of the subject say what rows hold"
            )
        return x, _check_labels(path, x, y, examples)
    if x.dtype in (np.uint8, np.uint16) and len(shape) == 3:
        x = x.astype(np.float32) / np.float32(np.iinfo(x.dtype).max)
    elif x.dtype.kind == "f" and not np.isfinite(x).all():
        many = int((~np.isfinite(x)).reshape(len(x), -1).any(1).sum())
        raise UserError(
            f"{path}: {many} of {len(x)} examples hold numbers that are not finite, such as missing values",
            hint="fill them in as the clients do before they train, or leave these examples out",
        )
    elif x.dtype.kind == "f" and len(shape) == 3 and x.size and (x.min() < 0 or x.max() > 1):
        raise UserError(
            f"{path}: examples go from {x.min():.3g} to {x.max():.3g}, and not from 0 to 1",
            hint="give images before they are normalised by mean and std",
        )
    elif x.dtype.kind == "f":
        x = x.astype(np.float32)
    elif not (x.dtype.kind in "iu" and len(shape) == 1):
        raise UserError(
            f"{path}: examples are {x.dtype}, and not numbers from 0 to 1, bytes or images of 16 bits",
            hint="give them before normalisation; mean and std of the subject say what the model sees",
        )
    return (x.astype(np.int64) if x.dtype.kind in "iu" else x), _check_labels(path, x, y, examples)


def _check_labels(path: Path, x: NDArray[Any], y: NDArray[Any], examples: ExampleLayout) -> NDArray[Any]:
    """As the stated task has them."""
    task: Task = load_task(examples.task)()
    if task.has_classes and y.shape == (len(x),) and y.dtype.kind == "f" and not np.array_equal(y, np.rint(y)):
        raise UserError(
            f"{path}: the labels y are real numbers ({y.dtype}), and the subject states classes",
            hint="examples.task: regression, where the network gives a number; or cut the numbers into classes",
        )
    places = x.shape[2:] if task.by_place else y.shape[1:]
    wrong = task.misfit(y, len(x))
    if not wrong and y.shape[1:] != places:
        wrong = f"{list(y.shape)}, and examples have places {list(places)}"
    if wrong:
        raise UserError(f"{path}: y is {wrong}", hint=f"the subject's task is {task!r}: {task.words}")
    if not task.fits_names(y, len(examples.classes)):
        raise UserError(
            f"{path}: label {int(y.max())}, and the subject names {len(examples.classes)} classes",
            hint="labels count from 0 in the order of `classes`",
        )
    return y.astype(np.float32 if y.dtype.kind == "f" else np.int64)
