"""The recorder: artifacts to disk as they happen, and back.

One safetensors file a message, one JSON line a message in artifacts/manifest.jsonl with the file's
SHA-256. Messages that the config does not keep are still counted: each round adds "traffic" lines
with the number of messages and bytes by kind and direction, so that "who saw what" is complete
however little is kept. docs/artifact-format.md describes the format and a 15-line writer.
"""

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from safetensors.torch import load as load_tensors

from fedaudit.fl.artifact import Artifact, Channel, Party, Role, Route, did_client_send
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.provenance import Provenance
from fedaudit.fl.recording.sizes import sizes
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

MANIFEST = "manifest.jsonl"
MOST_OF_A_LINE = 2**24  # bytes
LONGEST = 200  # letters of the name of a message, which is a path
FORMAT, VERSION = "fedaudit-artifacts", 1  # what a manifest without such a line is, too
SET_ASIDE = Kind("example:unread")  # what a message that was set aside is read as: it may tell of anybody
LARGEST = float(np.finfo(np.float32).max) ** 0.5  # a longer number has no square of 32 bits
_COMMON = {"round", "channel", "sender", "seen_by"}
_FIELDS = {  # what each sort of line must hold
    "message": _COMMON | {"kinds", "sha256"},
    "unread": _COMMON | {"kinds", "sha256", "why"},  # a message that an import has set aside
    "traffic": _COMMON | {"senders", "messages", "bytes"},
    "format": {"version"},
    "party": {"node"},  # which node of somebody's federation a client is
    "error": set[str](),  # what a recorder could not keep
}


@dataclass
class Choice:
    """Which messages are kept."""

    rounds: Callable[[int], bool] = lambda _: True
    milestones: bool = False  # and those rounds that the method marks
    kinds: frozenset[Kind] | None = None

    def keeps(self, round: int, milestone: bool = False) -> bool:
        return self.rounds(round) or (milestone and self.milestones)


@dataclass
class Recorder:
    """Writes one run's artifacts under `folder`."""

    folder: Path
    choice: Choice = field(default_factory=Choice)

    def __post_init__(self) -> None:
        self.manifest = Log(self.folder / MANIFEST)
        self._traffic: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
        self._senders: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self._behind: dict[tuple[str, ...], set[int]] = defaultdict(set)
        self._merged: dict[tuple[str, ...], frozenset[int]] = {}  # the last that was added to `_behind`
        self._names: Counter[str] = Counter()
        self.provenance = Provenance()  # who was heard so far
        self.milestones: set[int] = set()  # rounds that end a phase, or come before the first

    def message(self, route: Route, payloads: Mapping[Kind, Mapping[str, torch.Tensor]], copies: int = 1) -> None:
        """Keep (or only count) one message; `copies` is the number of receivers of a broadcast."""
        round, channel, sender, receivers, seen_by = route
        behind = self.provenance.behind(route, payloads)
        keep = self.choice.keeps(round, round in self.milestones)
        kinds = [k for k in payloads if self.choice.kinds is None or k in self.choice.kinds]
        arrays, counted = {}, sizes(payloads)
        for kind, payload in payloads.items():
            nbytes = counted[kind]
            group = (channel, kind, sender.role, ",".join(sorted({read_role(s) for s in seen_by})))
            self._traffic[group][0] += copies
            self._traffic[group][1] += nbytes * copies
            self._senders[group].add(str(sender))
            if self._merged.get(group) is not behind[kind]:  # the same object for each client it goes to
                self._merged[group] = behind[kind]
                self._behind[group] |= behind[kind]
            if keep and kind in kinds:
                for name, tensor in payload.items():
                    arrays[f"{kind}/{name}"] = to_numpy(tensor)
        if not arrays:
            return
        name = f"r{round:05d}/{str(sender).replace('/', '-')}.{channel}"
        if channel == Channel.RELAY or (sender.role == Role.SERVER and "/" in seen_by[0]):
            name += "." + "+".join(r.replace("/", "-") for r in receivers)
        self._names[name] += 1
        if self._names[name] > 1:  # a client may send twice in a round: first a loss, then a model
            name += f".{self._names[name]}"
        data = save_bytes(arrays)
        self.manifest.attach(self.folder / f"{name}.safetensors", data)
        self.manifest.add(
            {
                "message": name,
                "round": round,
                "channel": channel,
                "sender": str(sender),
                "receivers": list(receivers),
                "seen_by": list(seen_by),
                "kinds": kinds,
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": sum(a.nbytes for a in arrays.values()),
                "behind": {k: sorted(behind[k]) for k in kinds},
            }
        )

    def end_round(self, round: int) -> dict[str, int]:
        """Write the round's traffic; returns bytes by channel."""
        totals: dict[str, int] = defaultdict(int)
        for group, (messages, nbytes) in self._traffic.items():
            channel, kind, sender, seen = group
            self.manifest.add(
                {
                    "traffic": kind,
                    "round": round,
                    "channel": channel,
                    "sender": sender,
                    "senders": len(self._senders[group]),
                    "seen_by": seen.split(",") if seen else [],  # nobody: secure aggregation
                    "messages": messages,
                    "bytes": nbytes,
                    "behind": sorted(self._behind[group]),
                }
            )
            totals[channel] += nbytes
        self._traffic.clear()
        self._senders.clear()
        self._behind.clear()
        self._merged.clear()
        self._names.clear()
        return totals


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """The numbers of a tensor; of a type that numpy has not, such as bfloat16, as float32, which is exact."""
    tensor = tensor.detach().cpu().contiguous()
    is_short = tensor.is_floating_point() and tensor.element_size() <= 2 and tensor.dtype != torch.float16
    return np.asarray((tensor.float() if is_short else tensor).numpy())


def load_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, as `to_numpy` gives them; raises SafetensorError and ValueError."""
    try:
        return dict(load_bytes(data))
    except KeyError:  # a type that numpy has not
        return {name: to_numpy(tensor) for name, tensor in load_tensors(data).items()}


def read_role(seen: str) -> str:
    """The role of a reader as lines name it: "client" of "client/3", and of "client"."""
    return seen.partition("/")[0]


def is_from_client(line: Mapping[str, Any]) -> bool:
    """Whether a client sent what a line tells of, to the server or, where there is none, to other clients."""
    return did_client_send(Party.parse(str(line["sender"])), Channel(line["channel"]))


def carries_shared_model(line: Mapping[str, Any]) -> bool:
    """Whether a message holds the model that a round begins with: the server's, or a client's in its place."""
    return line["channel"] in (Channel.DOWNLINK, Channel.RELAY) and Kind.GLOBAL_MODEL in line["kinds"]


def manifest(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a manifest about messages and traffic, in form; raises UserError naming a bad one."""
    for line in lines(folder):
        if "message" not in line and "traffic" not in line:
            continue
        try:
            check_form(line)
        except (ValueError, TypeError) as error:
            sort = "message" if "message" in line else "traffic"
            raise UserError(
                f"{folder / MANIFEST}: {sort} {line[sort]!r:.80} is not valid: {error}",
                hint="restore the file; docs/artifact-format.md describes each line",
            ) from error
        yield line


def unread(folder: Path) -> Iterator[dict[str, Any]]:
    """Lines of messages that an import has set aside: as of a message, whose name is under `unread`, and why."""
    yield from (line for line in lines(folder) if "unread" in line)


def read_head(file: BinaryIO, most: int) -> bytes:
    """What a safetensors file says of its arrays: names, types, shapes, places and notes of its writer, as JSON.

    Raises ValueError where that is longer than `most` bytes.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > most:
        raise ValueError(f"its header says {length:,} bytes")
    return file.read(length)


def check_form(line: Mapping[str, Any]) -> None:
    """Raises ValueError and TypeError for a value that is not what such a line holds."""
    is_message = "message" in line
    for name in ("round", *({"bytes"} & line.keys() if is_message else ("senders", "messages", "bytes"))):
        if type(line[name]) is not int or line[name] < 0:
            raise ValueError(f"{name} must be a whole number, not {line[name]!r:.40}")
    Channel(line["channel"])
    behind = line.get("behind", {} if is_message else [])
    if is_message and not isinstance(behind, dict):
        raise ValueError("behind is a list of clients for each kind")
    lists = {k: line[k] for k in ("seen_by", "receivers", "kinds") if k in line}
    lists |= behind if is_message else {"behind": behind}
    for name, value in lists.items():
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list")
    for party in [line["sender"], *line["seen_by"], *line.get("receivers", ())]:
        if not isinstance(party, str):
            raise ValueError(f"{party!r:.40} is no party")
        Party.parse(party)
    for kind in [*line["kinds"], *behind] if is_message else [line["traffic"]]:
        _check_kind(kind)
    if is_message and not (isinstance(line["message"], str) and len(line["message"]) <= LONGEST):
        raise ValueError(f"{line['message']!r:.60} is no name of a message, or too long")
    if any(type(k) is not int for k in itertools.chain(*(behind.values() if is_message else [behind]))):
        raise ValueError("behind lists the numbers of clients")


def _check_kind(name: object) -> None:
    try:
        Kind(name)
    except ValueError as error:
        raise ValueError(
            f"{str(name)!r:.60} is no kind: one of your own is WHOSE:ROLE, such as client:optimizer"
        ) from error


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of a manifest, one at a time; raises UserError naming a bad line, or the version of another."""
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            f"no {MANIFEST} in {folder}",
            hint="run `fedaudit run CONFIG --phase simulate`, or see docs/artifact-format.md",
        )
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_OF_A_LINE), b""), start=1):
            try:
                record = parse_json(line)
                sort = next((s for s in _FIELDS if isinstance(record, dict) and s in record), None)
                if sort is None:
                    raise ValueError("neither a message nor a traffic line")
                if missing := sorted(_FIELDS[sort] - record.keys()):
                    raise ValueError(f"{missing[0]!r} is missing")
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path} line {number} is not a manifest line: {error}",
                    hint="restore the file; docs/artifact-format.md describes each line",
                ) from error
            if sort == "format" and (record["format"], record["version"]) != (FORMAT, VERSION):
                raise UserError(
                    f"{path} is of format {record['format']!r:.40}, version {record['version']!r:.20}; this "
                    f"fedaudit reads {FORMAT}, version {VERSION}",
                    hint="use the fedaudit that fits it, or record again with `fedaudit tools recorder`",
                )
            yield record


class NotFiniteError(UserError):
    """A recorded array holds NaN or infinity."""


class DamagedError(UserError):
    """A recorded file holds no arrays that can be loaded."""


def read(
    folder: Path, wanted: Callable[[dict[str, Any]], bool] = lambda _: True, kinds: Collection[Kind] | None = None
) -> list[Artifact]:
    """The recorded artifacts of these kinds, or of all, whose line is `wanted`, with hashes and shapes checked.

    No more than one message is in memory besides what is returned.

    Raises UserError where a file is missing, leads outside the folder, was changed, is damaged or
    holds NaN; the sentence names the file.
    """
    artifacts: list[Artifact] = []
    names: set[str] = set()
    for line in manifest(folder):
        if "message" in line and wanted(line):
            artifacts += [a for a in read_message(folder, line) if kinds is None or a.kind in kinds]
            if line["message"] in names:
                raise UserError(
                    f"{folder / MANIFEST} lists message {line['message']!r} twice",
                    hint="give every message a name of its own",
                )
            names.add(line["message"])
    return artifacts


def read_message(folder: Path, line: Mapping[str, Any]) -> list[Artifact]:
    """The artifacts of one line; raises UserError as `read` does."""
    route, path, arrays = _load_message(folder, line)
    payloads: dict[Kind, dict[str, NDArray[Any]]] = {Kind(k): {} for k in line["kinds"]}
    for key, array in sorted(arrays.items()):  # safetensors gives them in another order every time
        kind, _, part = key.partition("/")
        if kind not in payloads or not part:
            raise UserError(
                f"artifact {path} holds {key!r}, which its manifest line does not list",
                hint="arrays are named kind/name, with kind in the line's kinds",
            )
        if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            if route.sender.role is not Role.SERVER:
                raise NotFiniteError(
                    f"artifact {path}: {key!r} holds NaN or infinity",
                    hint="a message that is not finite is rejected, as the server would",
                )
            raise NotFiniteError(
                f"training has diverged: what the server sent in round {route.round + 1} holds NaN or infinity "
                f"({key} in {path})",
                hint="nothing can be read out of such a model: train with a smaller step size, clipped gradients "
                "or, where clients are malicious, a robust aggregator; the robustness matrix measures such runs",
            )
        payloads[Kind(kind)][part] = array
    return [_make_artifact(line["message"], kind, route, payload) for kind, payload in payloads.items()]


def read_set_aside(folder: Path) -> list[Artifact]:
    """Messages that an import has set aside, each as the numbers in it, whatever they are called.

    A number that is not finite, or has no square, is 0. Left out are files of which nothing can be loaded. Raises
    UserError as `read` does.
    """
    found = []
    for line in unread(folder):
        try:
            route, _, arrays = _load_message(folder, line | {"message": line["unread"]})
        except DamagedError:  # such as types that nothing here has
            continue
        numbers = {
            name: _to_numbers(v) for name, v in sorted(arrays.items()) if v.dtype.kind in "fiub" and v.size
        }
        if numbers:
            found.append(_make_artifact(line["unread"], SET_ASIDE, route, numbers))
    return found


def _to_numbers(array: NDArray[Any]) -> NDArray[np.float32]:
    values = np.asarray(array, np.float64)
    return np.where(np.isfinite(values) & (abs(values) <= LARGEST), values, 0).astype(np.float32)


def _make_artifact(name: str, kind: Kind, route: Route, payload: Mapping[str, NDArray[Any]]) -> Artifact:
    return Artifact(
        id=f"{name}/{kind}",
        kind=kind,
        channel=route.channel,
        round=route.round,
        sender=route.sender,
        seen_by=route.seen_by,
        payload=payload,
    )


def _load_message(folder: Path, line: Mapping[str, Any]) -> tuple[Route, Path, dict[str, NDArray[Any]]]:
    """The way of a message, and its file with the arrays in it; raises UserError as `read` does."""
    try:
        name, digest = str(line["message"]), line["sha256"]
        round, channel = int(line["round"]), Channel(line["channel"])
        sender, seen = Party.parse(str(line["sender"])), tuple(map(str, line["seen_by"]))
        route = Route(round, channel, sender, (), seen)
        if not (isinstance(line["seen_by"], list) and isinstance(line["kinds"], list)):
            raise ValueError("seen_by and kinds must be lists")
        if not all(map(Kind, line["kinds"])):  # raises for what is none
            raise ValueError("a kind has no name")
        path = (folder / f"{name}.safetensors").resolve()
        present = path.is_file()  # a folder is none, nor a pipe that would never end
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise UserError(
            f"{folder / MANIFEST}: message {line.get('message')!r:.80} is not valid: {error}",
            hint="docs/artifact-format.md describes each line",
        ) from error
    if not path.is_relative_to(folder.resolve()):
        raise UserError(
            f"{folder / MANIFEST}: {name!r} leads outside the run folder",
            hint="do not trust this folder; paths must stay inside artifacts/",
        )
    if not present:
        raise UserError(f"artifact {path} is missing", hint="restore it, or simulate again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise UserError(
            f"artifact {path} is not the one that was recorded: its SHA-256 differs",
            hint="restore the file; a changed artifact is never audited",
        )
    try:
        arrays = load_arrays(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"artifact {path} is damaged: {error}", hint="write it with safetensors") from error
    return route, path, arrays
