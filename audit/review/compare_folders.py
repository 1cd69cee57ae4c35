"""Two run folders held against each other, every file and every field: that of an owner and one made again here.

`STATED` lists the fields that no second run can say, which are printed as stated by the owner, and `DERIVED` the
files that follow from others and that every command derives for itself. All else is compared.

Where training gives other digits here than on the owner's machine, which shows in most messages, messages and
metrics must be near; on the same digits one that differs was edited. Evidence must be as near as the intervals of
the run that was made here allow. Nothing that the owner wrote decides how the comparison is made.
"""

import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from fedaudit.audit.attestation.chain import read_chain
from fedaudit.audit.attestation.record import CELLS, is_of_run, name_in_run
from fedaudit.audit.case.digests import timeless
from fedaudit.audit.case.reading import plain_json
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.review.compare_values import SMALLEST, TOLERANCE, ValuePlace, compare_values
from fedaudit.fl.recording.recorder import load_arrays, read_head
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt

OF_A_CLASS = 0.25  # of the accuracy of one class, of which there are few examples
DRIFT = 0.5  # of an array's length: how far training on another machine may carry it
HINT = "the folder was edited, or made with other code or data"

# What nobody but the owner can say, and what reports were made with, which are rendered again. "*" is every key
# of an object, or every entry of a list.
STATED: dict[str, tuple[str, ...]] = {
    "phases.json": ("*.started", "*.seconds", "report"),
    "chain.json": ("registrations", "links.*.aside", "links.report"),
    "environment.json": ("hardware",),
    "evidence/[0-9]*.json": ("seconds",),
}
# What other code and libraries than the reviewer's change; named where it differs
CODE = {"chain.json": ("versions", "packages", "plugins"), "environment.json": ("versions",)}
# Digests of files that are compared themselves, and that `check` holds against them
DIGESTS: dict[str, tuple[str, ...]] = {
    "chain.json": ("links.*.wrote", "links.*.read"),
    "artifacts/manifest.jsonl": ("*.sha256",),
}
DERIVED = ("config.yaml", "audit.json", "report.*", "seal.*", "*.lock")
TRAINED = ("artifacts/manifest.jsonl", "ledger.jsonl", "metrics.jsonl", "data.json")


@dataclass(frozen=True, kw_only=True)
class FolderComparison:
    """Where an owner's folder is not equal to one that was made here, each place as near as is tolerated."""

    places: tuple[str, ...]
    code: tuple[str, ...]  # libraries and code of the owner's that are not the reviewer's
    messages: int  # files of messages
    moved: int  # of these, how many differ
    reach: float  # by how much of their length, at most

    @property
    def is_equal(self) -> bool:
        """Byte for byte, but for what the owner states."""
        return not self.places

    @property
    def has_same_digits(self) -> bool:
        """Whether training gives the same digits here as on the owner's machine."""
        return 2 * self.moved <= self.messages


def compare_folders(theirs: Path, ours: Path, *, trained: bool = False) -> FolderComparison:
    """Every place where the owner's folder is not equal to ours; with `trained` in what training leaves alone.

    Raises UserError for the first place that is further away than is tolerated.
    """
    phases = read_chain(ours).links  # what the owner's chain says decides nothing
    left, right = (dict(_list_files(folder, phases, trained)) for folder in (theirs, ours))
    equal = {name for name in left.keys() & right.keys() if _are_equal(left[name], right[name])}
    arrays = [name for name in right if name.endswith(".safetensors") and name in left]
    distances = {name: _measure_distance(left[name], right[name]) for name in arrays if name not in equal}
    messages = [name for name in arrays if not _is_state(right[name])]
    moved = [distances[name] for name in messages if name in distances]
    same = 2 * len(moved) <= len(messages) and bool(messages)
    places, code = list[str](), list[str]()
    for name in sorted((left.keys() | right.keys()) - equal):
        must_be_equal = same and _is_trained(name)
        for place in _compare_files(name, left.get(name), right.get(name), distances.get(name)):
            if place.is_far or must_be_equal:
                raise UserError(f"{theirs / name} is not what the run gives here: {place.text}", hint=HINT)
            of_code = any(key in place.text for key in CODE.get(name_in_run(name), ()))
            (code if of_code else places).append(f"{name}: {place.text}")
    return FolderComparison(
        places=tuple(places),
        code=tuple(code),
        messages=len(messages),
        moved=len(moved),
        reach=max(moved, default=0.0),
    )


def _list_files(folder: Path, phases: Collection[str], trained: bool) -> Iterator[tuple[str, Path]]:
    """Those that these phases leave and that are compared, by their names in the folder."""
    run = RunDir(folder)
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        own = name_in_run(name)
        if not path.is_file() or not is_of_run(name, phases) or any(fnmatchcase(own, d) for d in DERIVED):
            continue
        if not trained or (_is_trained(name) and not name.startswith(("matrix/", "absence/"))):
            yield name, run.inside(path.absolute())


def _is_trained(name: str) -> bool:
    """Whether training leaves it."""
    return name_in_run(name) in TRAINED or name.endswith(".safetensors")


def _are_equal(left: Path, right: Path) -> bool:
    return left.stat().st_size == right.stat().st_size and left.read_bytes() == right.read_bytes()


def _measure_distance(left: Path, right: Path) -> float:
    """How far apart two messages are, as a share of ours; infinite where more than numbers of arrays differs."""
    contents = left.read_bytes(), right.read_bytes()
    try:
        heads = {read_head(io.BytesIO(content), len(content)) for content in contents}
        theirs, ours = map(load_arrays, contents)
    except (SafetensorError, ValueError, KeyError):
        return math.inf
    if len(heads) > 1 and not _is_state(left):
        return math.inf  # other arrays, or the same in other bytes: no machine gives those
    if {k: v.shape for k, v in theirs.items()} != {k: v.shape for k, v in ours.items()}:
        return math.inf
    shares = [_measure_share(theirs[name].astype(np.float64), ours[name].astype(np.float64)) for name in ours]
    return max((a if math.isfinite(a) else math.inf for a in shares), default=0.0)


def _is_state(path: Path) -> bool:
    """Whether a file is a checkpoint, whose head has the lengths of logs, which other digits change."""
    return path.parent.name == "checkpoint"


def _measure_share(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(left - right)) / max(float(np.linalg.norm(right)), SMALLEST)


def _compare_files(name: str, left: Path | None, right: Path | None, moved: float | None) -> Iterator[ValuePlace]:
    """Every place where two files that are not equal byte for byte differ."""
    if left is None or right is None:
        is_stale = left is not None and name.startswith(tuple(f"{c}/" for c in CELLS))
        where = "here alone" if left is None else "in the folder alone"
        yield ValuePlace(f"it is {where}", not is_stale)
        return
    if moved is not None:
        yield ValuePlace(f"it is {fmt.percent(moved)} of its length away", not moved <= DRIFT)
        return
    if not name.endswith((".json", ".jsonl")):  # code that came with a record
        yield ValuePlace("it is another file", True)
        return
    own = name_in_run(name)
    theirs, ours = (_read(path, own) for path in (left, right))
    if own == "metrics.jsonl":
        yield from _compare_metrics(theirs, ours)
        return
    for place in compare_values(theirs, ours):
        yield ValuePlace(
            place.text, place.is_far and not any(f".{k}" in f".{place.text}" for k in CODE.get(own, ()))
        )


def _read(path: Path, own: str) -> Any:
    """A file's values, but for what its owner states and for digests of what is compared itself."""
    text = path.read_bytes()
    if own.endswith(".jsonl"):
        value: Any = [plain_json(line, f"{path} line {i}") for i, line in enumerate(text.splitlines(), start=1)]
    else:
        value = plain_json(text, str(path))
    keys = [k for table in (STATED, DIGESTS) for p, of in table.items() if fnmatchcase(own, p) for k in of]
    return timeless(value, keys)


def _compare_metrics(theirs: Sequence[Any], ours: Sequence[Any]) -> Iterator[ValuePlace]:
    """Lines of metrics.jsonl; of one class, and of single answers, more may differ than of the accuracy."""
    if len(theirs) != len(ours):
        yield ValuePlace(f"it has {len(theirs)} rounds, and here {len(ours)}", True)
        return
    for t, (left, right) in enumerate(zip(theirs, ours, strict=True)):
        if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
            yield from compare_values(left, right, f"round {t}")
            continue
        at = f"round {t}"
        if left.get("correct") != right.get("correct"):
            bits, own = (_read_bits(line.get("correct")) for line in (left, right))
            is_far = bits.size != own.size or bool((bits != own).mean() > TOLERANCE)
            yield ValuePlace(f"{at}.correct: other answers are right", is_far)
        yield from compare_values(
            left.get("class_accuracy"), right.get("class_accuracy"), f"{at}.class_accuracy", OF_A_CLASS
        )
        one, other = (timeless(line, ("correct", "class_accuracy")) for line in (left, right))
        yield from compare_values(one, other, at)


def _read_bits(text: Any) -> NDArray[np.uint8]:
    """Answers of which each bit says whether it is right; none of what is no such text."""
    try:
        return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    except (TypeError, ValueError):
        return np.zeros(0, np.uint8)
