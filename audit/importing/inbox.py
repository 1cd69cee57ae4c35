"""Taking in an inbox: every byte of it comes from somebody else, and is checked before it lies in a run folder.

Nothing is unpickled or executed. Names are plain, files lie inside and are no links, sizes and counts stay below
limits given beforehand, a file is what its SHA-256 says, and the header of a file is read before its arrays. The
first thing wrong ends the import with one sentence. A message that is not finite is left out and counted, as the
server would have rejected it. Optional keys are filled in, and a model's arrays get its network's names and types
(layout.py): later readers find one form, whatever recorded it.
"""

import io
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedaudit.audit.case.reading import survey
from fedaudit.audit.importing.layout import MODEL_KINDS, Layout, Shapes
from fedaudit.audit.settings.subject import PrototypeArrays
from fedaudit.fl.artifact import Channel, Party, Role
from fedaudit.fl.kinds import UPDATES, Kind, explain_misfit
from fedaudit.fl.recording.recorder import FORMAT, MANIFEST, VERSION, check_form, lines, read_head
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.visible import visible_name

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
PARTY = re.compile(r"server|public|client|(client|mediator)/\d{1,7}")
NUMBERED = re.compile(r"client/\d{1,7}")
BYTES = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
BYTES |= {"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
AT_CLIENTS = ("flower-client", "nvflare-client")  # recorders that cannot know who reads what they send
MOST_OF_A_HEADER = 10_000_000
MOST_LOOKED_AT = 200  # messages whose arrays' types are compared
FORBIDDEN = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x93NUMPY")
RECIPE = (
    "convert it where it was made: load it there, then Inbox.message(...) of the file that "
    "`fedaudit tools recorder plain` writes"
)


@dataclass(frozen=True, kw_only=True)
class InboxLimits:
    """What an inbox may hold at most."""

    messages: int = 2_000_000
    message_bytes: int = 2**31
    bytes: int = 64 * 2**30
    arrays: int = 100_000  # in a message
    rounds: int = 1_000_000


@dataclass
class Taken:
    """What came in."""

    recorder: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # client/3 -> node
    errors: list[str] = field(default_factory=list)  # that the recorder counted
    left_out: list[str] = field(default_factory=list)  # messages that were not finite
    changes: list[str] = field(default_factory=list)  # what the copy has otherwise than the inbox, in sentences
    messages: int = 0
    bytes: int = 0


def take_in(
    inbox: Path,
    out: Path,
    limits: InboxLimits | None = None,
    sees: Mapping[Any, Sequence[str]] | None = None,
    network: Shapes | None = None,
    prototypes: Sequence[PrototypeArrays] = (),
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Taken:
    """Copy an inbox into `out`, an artifacts folder.

    Args:
        inbox: What a recorder wrote.
        out: Where the copy lies.
        limits: What it may hold at most.
        sees: Channel -> who could read it, where that is stated.
        network: Name -> shape of the stated network's arrays, in its order.
        prototypes: Open kinds that are stated to be prototypes, with their arrays.
        progress: Called with the messages that were read, and with how many there are.

    Raises UserError for the first thing that is not what a recorder leaves.
    """
    limits, taken = limits or InboxLimits(), Taken()
    layout = Layout(network or {}, prototypes=prototypes)
    checked = _parse_lines(inbox, limits)
    models = (x for x in checked if "message" in x and MODEL_KINDS & {*x["kinds"]})
    layout.learn_types(header(_locate(inbox, x["message"])) for x in islice(models, MOST_LOOKED_AT))
    for _ in checked:  # every line, before anything is written
        pass
    total = sum("message" in line for line in lines(inbox))
    log, traffic, besides, told = None, _Counted(), _Counted(), False
    for line in _parse_lines(inbox, limits):
        if log is None:
            durable.remove(out / MANIFEST)
            log = durable.Log(out / MANIFEST)
            log.add({"format": FORMAT, "version": VERSION})
        if "message" in line:
            progress(taken.messages + len(taken.left_out), total)
            data = _file(inbox, str(line["message"]), str(line["sha256"]), limits, taken.bytes)
            arrays = _arrays(inbox, line, data, limits)
            settled = layout.settle(str(line["message"]), arrays, str(line["sender"]))
            if prototypes and (kinds := [*dict.fromkeys(k.partition("/")[0] for k in settled)]) != line["kinds"]:
                renamed = {layout.name_kind(k, str(line["sender"])) for k in line["kinds"]}
                besides.add(line | {"kinds": [k for k in kinds if k not in renamed]}, settled)
                line = line | {"kinds": kinds}
            _refuse_misfit(inbox, line, settled)
            _name_clients(line, taken.nodes)
            if broken := _not_finite(arrays):
                taken.left_out.append(f"{line['message']}: {broken} holds NaN or infinity")
                continue
            if settled is not arrays:
                arrays, data = settled, save(settled)
                line = line | {"sha256": sha256(data).hexdigest()}
            line = {"bytes": sum(a.nbytes for a in arrays.values())} | line
            if sees and line["channel"] in sees:
                _check_readers(line, sees[line["channel"]], taken.recorder)
                line = line | {"seen_by": list(sees[line["channel"]])}
            log.attach(out / f"{line['message']}.safetensors", data)
            traffic.add(line, arrays)
            taken.messages, taken.bytes = taken.messages + 1, taken.bytes + len(data)
        elif "traffic" in line:
            told, line = True, line | {"traffic": layout.name_kind(str(line["traffic"]), str(line["sender"]))}
        elif "party" in line:
            taken.nodes[line["party"]] = line["node"]
        elif "error" in line:
            taken.errors.append(str(line["error"])[:300])
        else:
            taken.recorder = str(line.get("recorder", ""))[:40]
        if "format" not in line:
            log.add(line)
    if log is None or not taken.messages:
        raise UserError(
            f"{inbox} holds no message", hint="record at least one round; `fedaudit tools doctor INBOX`"
        )
    for line in besides.lines() if told else traffic.lines():
        log.add(line)
    durable.sync([log])
    log.close()
    progress(total, total)
    taken.changes = layout.describe()
    return taken


def _name_clients(line: Mapping[str, Any], nodes: dict[str, str]) -> None:
    """A client of which no line says what node it is has its own number for a name: client-3."""
    behind = (f"client/{k}" for clients in line.get("behind", {}).values() for k in clients)
    for party in (line["sender"], *line.get("receivers", ()), *line["seen_by"], *behind):
        if NUMBERED.fullmatch(party):
            nodes.setdefault(party, party.replace("/", "-"))


def _check_nodes(nodes: Mapping[str, str], where: Path) -> None:
    """Raises UserError where two clients are one node: whose examples are whose would be open."""
    twice = next((node for node, many in Counter(nodes.values()).items() if many > 1), None)
    if twice is not None:
        both = " and ".join([party for party, node in nodes.items() if node == twice][:2])
        raise UserError(
            f"{where}: {both} are both the node {twice!r}",
            hint="record each node under one number, client/NUMBER, and under no name of another",
        )


def _check_readers(line: Mapping[str, Any], stated: Sequence[str], recorder: str) -> None:
    """Raises UserError where a statement takes away a reader that the recorder itself saw reading."""
    read, told = ({p.partition("/")[0] for p in some} for some in (line["seen_by"], stated))
    if recorder not in AT_CLIENTS and (hidden := sorted(read - told)):
        raise UserError(
            f"subject.sees takes {hidden[0]} from who reads the {line['channel']}, and the recorder "
            f"{recorder or 'of this inbox'} noted that it read {line['message']}",
            hint="leave it out; a server that aggregates securely has no single upload to record",
            key="subject.sees",
        )


def inspect(inbox: Path, limits: InboxLimits | None = None) -> list[dict[str, Any]]:
    """The lines of an inbox, and its first messages, checked as an import does."""
    limits = limits or InboxLimits()
    found = list(_parse_lines(inbox, limits))
    layout = Layout()
    for line in islice((x for x in found if "message" in x), MOST_LOOKED_AT):
        data = _file(inbox, str(line["message"]), str(line["sha256"]), limits, 0)
        _refuse_misfit(inbox, line, layout.settle(str(line["message"]), _arrays(inbox, line, data, limits)))
    return found


def header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name -> type and shape of each array of a message's file, without its arrays."""
    with open(path, "rb") as file:
        head = file.read(8 + MOST_OF_A_HEADER)
    return _header(head, path.stat().st_size, path)


def _parse_lines(inbox: Path, limits: InboxLimits) -> Iterator[dict[str, Any]]:
    if inbox.is_dir():
        survey(inbox)
    if not (inbox / MANIFEST).is_file() or (inbox / MANIFEST).is_symlink():
        others = sorted(p.name for p in inbox.glob("*")) if inbox.is_dir() else []
        bad = [n for n in others if n.endswith((".pt", ".pth", ".pkl", ".pickle", ".npz", ".fobs", ".bin"))]
        if bad:
            raise UserError(f"{inbox} holds {bad[0]!r:.80} and no {MANIFEST}: it is not an inbox", hint=RECIPE)
        raise UserError(f"no {MANIFEST} in {inbox}", hint="give the folder that a recorder wrote")
    names: set[str] = set()
    nodes, unnamed = dict[str, str](), dict[str, str]()
    models: dict[tuple[int, str], set[str]] = defaultdict(set)  # round, reader -> models it was sent
    sends = Counter[tuple[int, str]]()
    for number, line in enumerate(lines(inbox), start=1):
        where = f"{inbox / MANIFEST} line {number}"
        if number > limits.messages:
            raise UserError(
                f"{inbox / MANIFEST} has more than {limits.messages:,} lines", hint="import fewer rounds"
            )
        try:
            _check_line(line, limits)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UserError(f"{where} is not valid: {error}", hint="docs/artifact-format.md") from error
        if "message" in line:
            if line["message"] in names:
                raise UserError(
                    f"{where}: message {line['message']!r} is listed twice", hint="names are used once"
                )
            names.add(line["message"])
            _name_clients(line, unnamed)
            if line["channel"] == Channel.DOWNLINK and Kind.GLOBAL_MODEL in line["kinds"]:
                for reader in line["seen_by"]:
                    models[line["round"], reader].add(str(line["sha256"]))
            elif {*UPDATES} & {*line["kinds"]}:
                sends[line["round"], line["sender"]] += 1
        elif "party" in line and nodes.setdefault(line["party"], line["node"]) != line["node"]:
            raise UserError(
                f"{where}: {line['party']} is the node {line['node']!r}, and before it was "
                f"{nodes[line['party']]!r}",
                hint="a client is one node; give another node a number of its own",
            )
        yield line
    _check_nodes(unnamed | nodes, inbox / MANIFEST)
    for (round, sender), many in sends.items():
        sent = models.get((round, sender), set()) | models.get((round, str(Role.CLIENT)), set())
        if len(sent) > 1 and many > 1:
            raise UserError(
                f"in round {round} {sender} was sent {len(sent)} different models and sent {many} updates: "
                "rounds that were not told apart, or a server that began again",
                hint="record the round of each message, as `fedaudit tools recorder` does, each run apart",
            )


def _check_line(line: Mapping[str, Any], limits: InboxLimits) -> None:
    """Raises ValueError and the like for what no recorder writes."""
    if "party" in line and not (NUMBERED.fullmatch(str(line["party"])) and _is_node(line["node"])):
        raise ValueError("a party is client/NUMBER, with a node of plain characters: at most 200, no slash")
    if "message" not in line and "traffic" not in line:
        return
    check_form(line)
    if line["round"] > limits.rounds:
        raise ValueError(f"round must be a whole number up to {limits.rounds:,}")
    for party in [line["sender"], *line["seen_by"], *line.get("receivers", [])]:
        if not PARTY.fullmatch(party) and party != "mediator":
            raise ValueError(f"{party!r:.40} is no party")
    behind = line.get("behind", {}) if "message" in line else {}
    if any(len(clients) > limits.messages for clients in (line["seen_by"], *behind.values())):
        raise ValueError(f"a line names at most {limits.messages:,} parties")
    if any(not 0 <= k < 10**7 for clients in behind.values() for k in clients):
        raise ValueError("behind lists the numbers of clients, from 0")
    if "message" in line:
        name = line["message"]
        if len(name) > 300 or not NAME.fullmatch(name):
            raise ValueError(f"{name!r:.60} is no name of a message: letters, digits, . _ + - and / between them")
        if not line["kinds"]:
            raise ValueError("kinds must be a list")
        if line["channel"] == Channel.UPLINK and Party.parse(line["sender"]).role != Role.CLIENT:
            raise ValueError(f"{line['sender']} sends no uplink")


def _is_node(name: object) -> bool:
    """Whether a name, in any script, can be printed and can be the name of a file."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 200
        and visible_name(name) == name
        and name == name.strip()
        and not {"/", "\\"} & {*name}
    )


def _locate(inbox: Path, name: str) -> Path:
    """The file of a message; raises UserError where it is none or lies elsewhere."""
    path = inbox / f"{name}.safetensors"
    if path.resolve() != inbox.resolve() / f"{name}.safetensors":
        raise UserError(
            f"{path} is a link or leads through one", hint="do not trust this inbox; its files lie in it"
        )
    if not path.is_file():  # nor a pipe, which would never end
        raise UserError(f"{path} is missing or is not a file", hint="copy the whole inbox")
    return path


def _file(inbox: Path, name: str, digest: str, limits: InboxLimits, before: int) -> bytes:
    """The bytes of a message, of an inbox of which `before` were read."""
    path = _locate(inbox, name)
    size = path.stat().st_size
    if size > limits.message_bytes or before + size > limits.bytes:
        raise UserError(
            f"{path} brings the inbox above its limit of {limits.bytes / 2**30:g} GiB, "
            f"{limits.message_bytes / 2**30:g} GiB a message",
            hint="`--most-gib` raises it",
        )
    with open(path, "rb") as file:
        data = file.read(size + 1)
    if sha256(data).hexdigest() != digest:
        raise UserError(
            f"{path} is not the file that was recorded: its SHA-256 differs", hint="copy the inbox once more"
        )
    return data


def _arrays(inbox: Path, line: Mapping[str, Any], data: bytes, limits: InboxLimits) -> dict[str, Any]:
    path = inbox / f"{line['message']}.safetensors"
    found = _header(data, len(data), path)
    if len(found) > limits.arrays:
        raise UserError(f"{path} has {len(found):,} arrays", hint=f"at most {limits.arrays:,} in a message")
    for name in found:
        kind, _, part = name.partition("/")
        if kind not in line["kinds"] or not part or visible_name(part) != part or len(part) > 300:
            raise UserError(
                f"{path} holds {name!r:.80}, which its line does not list",
                hint="arrays are named kind/name, with kind in the line's kinds",
            )
    try:
        arrays: dict[str, Any] = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path} is damaged: {error}", hint="write it with safetensors") from error
    return arrays


def _refuse_misfit(inbox: Path, line: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Raises UserError where arrays are not those of their kind."""
    for kind in line["kinds"]:
        own = {name.partition("/")[2]: a.shape for name, a in arrays.items() if name.startswith(f"{kind}/")}
        if problem := explain_misfit(Kind(kind), own):
            raise UserError(
                f"{inbox / line['message']}.safetensors: {kind} {problem}",
                hint="docs/artifact-format.md has the arrays of each kind",
            )


def _header(data: bytes, size: int, path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Checked against the file's size, so that no array is larger than the file it is in."""
    try:
        head = read_head(io.BytesIO(data), min(size - 8, MOST_OF_A_HEADER))
        entries = parse_json(head)
        found = {}
        for name, entry in entries.items():
            if name == "__metadata__":
                continue
            shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
            if any(type(n) is not int or n < 0 for n in (*shape, start, end)) or len(shape) > 16:
                raise ValueError(f"array {name!r:.60} has no shape")
            if entry["dtype"] not in BYTES:
                raise ValueError(f"array {name!r:.60} has type {entry['dtype']!r:.20}; send float32 or float16")
            if math.prod(shape) * BYTES[entry["dtype"]] != end - start or end > size - 8 - len(head):
                raise ValueError(f"array {name!r:.60} of {math.prod(shape):,} numbers is not in the file")
            found[name] = (str(entry["dtype"]), shape)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if data.startswith(FORBIDDEN):  # asked last: a header of 640 bytes begins like a pickle
            raise UserError(
                f"{path} is a pickle, an archive or a numpy file, not safetensors", hint=RECIPE
            ) from None
        raise UserError(f"{path} is not safetensors: {error}", hint="write it with safetensors") from error
    return found


def _not_finite(arrays: Mapping[str, Any]) -> str:
    """The first array that is not finite; empty where all are."""
    bad = (n for n, a in arrays.items() if np.issubdtype(a.dtype, np.inexact) and not np.isfinite(a).all())
    return next(bad, "")


class _Counted:
    """Traffic, from the messages themselves."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str, str, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0])
        self._senders: dict[Any, set[str]] = defaultdict(set)

    def add(self, line: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        copies = max(1, len(line.get("receivers", ()))) if line["sender"] == str(Role.SERVER) else 1
        readers = tuple(sorted({s.partition("/")[0] for s in line["seen_by"]}))
        for kind in line["kinds"]:
            key = (line["round"], line["channel"], kind, line["sender"].partition("/")[0], readers)
            size = sum(a.nbytes for name, a in arrays.items() if name.startswith(f"{kind}/"))
            self._counts[key][0] += copies
            self._counts[key][1] += copies * size
            self._senders[key].add(line["sender"])

    def lines(self) -> Iterator[dict[str, Any]]:
        for key, (messages, size) in self._counts.items():
            round, channel, kind, sender, readers = key
            line = {"traffic": kind, "round": round, "channel": channel, "sender": sender}
            line |= {"senders": len(self._senders[key]), "seen_by": list(readers)}
            yield line | {"messages": messages, "bytes": size}
