"""Taking in an inbox: every byte of it comes from somebody else, and is checked before it lies in a run folder.

Nothing is unpickled or executed. Names are plain, files lie inside and are no links, sizes and counts stay below
limits given beforehand, a file is what its SHA-256 says, and the header of a file is read before its arrays. The
first thing wrong ends the import with one sentence. A client's message that is odd (door.py), and any that is not
finite, is set aside: it is copied as it came, its line says `unread` and why, and it is read as numbers alone.
Optional keys are filled in, and a model's arrays get its network's names and types (layout.py): later readers
find one form, whatever recorded it.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save

from fedaudit.attacks.evaluation.payloads import find_unopened
from fedaudit.audit.case.reading import survey
from fedaudit.audit.importing.door import MOST_ARRAYS, Door, find_unfit, is_known
from fedaudit.audit.importing.layout import MODEL_KINDS, Layout, Shapes
from fedaudit.audit.importing.message_file import BYTES, RECIPE, header, locate, parse_header
from fedaudit.fl.artifact import Channel, Party, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import (
    FORMAT,
    MANIFEST,
    SET_ASIDE,
    VERSION,
    check_form,
    is_from_client,
    lines,
    load_arrays,
)
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.visible import visible_name

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
PARTY = re.compile(r"server|public|client|(client|mediator)/\d{1,7}")
NUMBERED = re.compile(r"client/\d{1,7}")
AT_CLIENTS = ("flower-client", "nvflare-client")  # recorders that cannot know who reads what they send
MOST_LOOKED_AT = 200  # messages whose arrays' types are compared


@dataclass(frozen=True, kw_only=True)
class InboxLimits:
    """What an inbox may hold at most."""

    messages: int = 2_000_000
    message_bytes: int = 2**31
    bytes: int = 64 * 2**30
    arrays: int = MOST_ARRAYS  # in a message
    rounds: int = 1_000_000


@dataclass
class Taken:
    """What came in."""

    recorder: str = ""
    nodes: dict[str, str] = field(default_factory=dict)  # client/3 -> node
    errors: list[str] = field(default_factory=list)  # that the recorder counted
    unread: int = 0  # messages that were set aside
    changes: list[str] = field(default_factory=list)  # what the copy has otherwise than the inbox, in sentences
    messages: int = 0
    bytes: int = 0


def take_in(
    inbox: Path,
    out: Path,
    limits: InboxLimits | None = None,
    sees: Mapping[Any, Sequence[str]] | None = None,
    network: Shapes | None = None,
    prototypes: Mapping[str, Sequence[str]] | None = None,
    tied: Mapping[str, str] | None = None,
    stated: Mapping[str, int] | None = None,
    noised: Collection[Kind] = (),
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Taken:
    """Copy an inbox into `out`, an artifacts folder.

    Args:
        inbox: What a recorder wrote.
        out: Where the copy lies.
        limits: What it may hold at most.
        sees: Channel -> who could read it, where that is stated.
        network: Name -> shape of the stated network's arrays, in its order.
        prototypes: Open kinds that are stated to be prototypes -> their arrays.
        tied: Array of the network -> the one of which it is another name, so that one of the two may be sent.
        stated: Sizes by the letters that shapes of kinds have (fl/kinds.py), such as C, the number of classes.
        noised: Kinds whose numbers are said to be noised.
        progress: Called with the messages that were read, and with how many there are.

    Raises UserError for the first thing that is not what a recorder leaves.
    """
    limits, taken = limits or InboxLimits(), Taken()
    layout = Layout(network or {}, prototypes=prototypes or {}, tied=tied or {})
    odd = _judge(inbox, limits, layout, stated or {}, noised)  # every line, before anything is written
    total = sum("message" in line or "unread" in line for line in lines(inbox))
    log, traffic, besides, told, first = None, _Counted(), _Counted(), False, ""
    for line in _parse_lines(inbox, limits):
        if log is None:
            durable.remove(out / MANIFEST)
            log = durable.Log(out / MANIFEST)
            log.add({"format": FORMAT, "version": VERSION})
        if "message" in line:
            progress(taken.messages + taken.unread, total)
            name, sender = str(line["message"]), str(line["sender"])
            data = _file(inbox, name, str(line["sha256"]), limits, taken.bytes)
            _name_clients(line, taken.nodes)
            if sees and line["channel"] in sees:
                _check_readers(line, sees[line["channel"]], taken.recorder)
                line = line | {"seen_by": list(sees[line["channel"]])}
            if why := odd.get(name) or _find_unfit(line, arrays := _arrays(inbox, name, data)):
                line, sizes = _set_aside(line, why, _measure(data, name), layout)
                taken.unread, first = taken.unread + 1, first or why
            else:
                settled = layout.settle(name, arrays, sender)
                data = data if settled is arrays else save(settled)
                sizes = _measure(data, name)  # as they lie there: bfloat16 is read as a wider type
                if (
                    prototypes
                    and (kinds := [*dict.fromkeys(k.partition("/")[0] for k in settled)]) != line["kinds"]
                ):
                    renamed = {layout.name_kind(k, sender) for k in line["kinds"]}
                    besides.add(line | {"kinds": [k for k in kinds if k not in renamed]}, sizes)
                    line = line | {"kinds": kinds}
                if settled is not arrays:
                    line = line | {"sha256": sha256(data).hexdigest()}
                taken.messages += 1
                for key, what in find_unopened(settled).items():
                    taken.errors.append(f"{name}: {key} holds {what}, which is not read")
                    _count_lost({**line, "bytes": sizes[key]}, traffic, besides)
            line = line | {"bytes": sum(sizes.values())}  # as they are, whatever was said of them
            log.attach(out / f"{name}.safetensors", data)
            traffic.add(line, sizes)
            taken.bytes += len(data)
        elif "traffic" in line:
            told, line = True, line | {"traffic": layout.name_kind(str(line["traffic"]), str(line["sender"]))}
        elif "party" in line:
            taken.nodes[line["party"]] = line["node"]
        elif "error" in line:
            taken.errors.append(str(line["error"])[:300])
            _count_lost(line, traffic, besides)
        else:
            taken.recorder = str(line.get("recorder", ""))[:40]
        if "format" not in line:
            log.add(line)
    if log is None or not taken.messages:
        raise UserError(
            f"{inbox} holds no message" + (f" that can be read: {first}" if first else ""),
            hint="record at least one round; `fedaudit plan INBOX`",
        )
    for line in besides.lines() if told else traffic.lines():
        log.add(line)
    durable.sync([log])
    log.close()
    progress(total, total)
    taken.changes = layout.describe()
    return taken


def _judge(
    inbox: Path, limits: InboxLimits, layout: Layout, stated: Mapping[str, int], noised: Collection[Kind] = ()
) -> dict[str, str]:
    """What is odd about messages of clients, of all lines; the layout learns types of the first ones."""
    models = (x for x in _parse_lines(inbox, limits) if MODEL_KINDS & {*x.get("kinds", ())} and "message" in x)
    layout.learn_types(
        (str(x["sender"]), header(locate(inbox, str(x["message"])))) for x in islice(models, MOST_LOOKED_AT)
    )
    door = Door(
        inbox=inbox,
        layout=replace(layout, changes={}),  # nothing is changed yet
        sizes=stated,
        noised=frozenset(noised),
        arrays=limits.arrays,
    )
    return door.judge(_parse_lines(inbox, limits))


def _find_unfit(line: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """Why nothing can be computed with a message, in a sentence; empty where something can."""
    unfit = find_unfit(arrays, of_client=is_from_client(line))
    return unfit and f"{line['message']}/{unfit}"


def _set_aside(
    line: Mapping[str, Any], why: str, sizes: Mapping[str, int], layout: Layout
) -> tuple[dict[str, Any], dict[str, int]]:
    """The line of a message that stays unread, and bytes of its arrays by the kinds that they are counted as."""
    sender, kept = str(line["sender"]), ("round", "channel", "sender", "receivers", "seen_by", "sha256", "behind")

    def name(kind: str) -> str:
        return layout.name_kind(kind, sender) if kind in line["kinds"] and is_known(kind) else str(SET_ASIDE)

    kinds = [*dict.fromkeys([*map(name, line["kinds"]), str(SET_ASIDE)])]  # as which it is read
    unread = {
        "unread": line["message"],
        **{k: line[k] for k in kept if k in line},
        "kinds": kinds,
        "why": why[:400],
    }
    if not {*line.get("behind", {})} <= {*kinds}:
        unread.pop("behind", None)
    return unread, {f"{name(key.partition('/')[0])}/{key}": size for key, size in sizes.items()}


def _count_lost(line: Mapping[str, Any], *counts: "_Counted") -> None:
    if lost := _find_lost(line):
        for counted in counts:
            counted.add(lost, {f"{SET_ASIDE}/": lost["bytes"]})


def _find_lost(line: Mapping[str, Any]) -> dict[str, Any]:
    """What an error line says is missing, as a message of which nothing was kept; nothing where nothing crossed.

    A recorder that does not say what is missing lost a client's message.
    """
    if "error" in line and line.get("bytes") == 0:
        return {}
    sender = str(line.get("sender", Role.CLIENT))
    lost: dict[str, Any] = {"round": 0, "channel": Channel.UPLINK, "seen_by": [Role.SERVER], "bytes": 0}
    lost |= {key: line[key] for key in lost.keys() & line.keys()}
    return lost | {"kinds": [str(SET_ASIDE)], "sender": sender if PARTY.fullmatch(sender) else str(Role.CLIENT)}


def _measure(data: bytes, name: str) -> dict[str, int]:
    """Bytes of each array of a message's file."""
    found = parse_header(data, len(data), Path(f"{name}.safetensors"))
    return {key: math.prod(shape) * BYTES[kind] for key, (kind, shape) in found.items()}


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
    """The lines of an inbox, checked as an import does, and its first messages with their numbers.

    A line of a message that an import would set aside says `unread` and why.
    """
    limits, layout, looked = limits or InboxLimits(), Layout(), 0
    odd = _judge(inbox, limits, layout, {})
    found = []
    for line in _parse_lines(inbox, limits):
        if "message" in line:
            name, looked = str(line["message"]), looked + 1
            why = odd.get(name, "")
            if looked <= MOST_LOOKED_AT:
                data = _file(inbox, name, str(line["sha256"]), limits, 0)
                why = why or _find_unfit(line, _arrays(inbox, name, data))
            line = _set_aside(line, why, {}, layout)[0] if why else line
        found.append(line)
    return found


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
    for number, line in enumerate(lines(inbox), start=1):
        where = f"{inbox / MANIFEST} line {number}"
        if number > limits.messages:
            raise UserError(
                f"{inbox / MANIFEST} has more than {limits.messages:,} lines", hint="import fewer rounds"
            )
        if "unread" in line:  # an import of what an import left: each is judged anew
            line = {"message" if k == "unread" else k: v for k, v in line.items() if k != "why"}
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
        elif "party" in line and nodes.setdefault(line["party"], line["node"]) != line["node"]:
            raise UserError(
                f"{where}: {line['party']} is the node {line['node']!r}, and before it was "
                f"{nodes[line['party']]!r}",
                hint="a client is one node; give another node a number of its own",
            )
        yield line
    _check_nodes(unnamed | nodes, inbox / MANIFEST)


def _check_line(line: Mapping[str, Any], limits: InboxLimits) -> None:
    """Raises ValueError and the like for what no recorder writes."""
    if "party" in line and not (NUMBERED.fullmatch(str(line["party"])) and _is_node(line["node"])):
        raise ValueError("a party is client/NUMBER, with a node of plain characters: at most 200, no slash")
    if "error" in line:
        if not (lost := _find_lost(line)):
            return
        line = lost | {"traffic": SET_ASIDE, "senders": 1, "messages": 1}
    if "message" not in line and "traffic" not in line:
        return
    if "message" in line and isinstance(line["kinds"], list) and is_from_client(line):  # the door asks of others
        line = {
            **line,
            "kinds": [k for k in line["kinds"] if not isinstance(k, str) or is_known(k)] or [SET_ASIDE],
        }
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
        is_client = Party.parse(line["sender"]).role == Role.CLIENT
        if line["channel"] == (Channel.DOWNLINK if is_client else Channel.UPLINK):
            raise ValueError(f"{line['sender']} sends no {line['channel']}; from client to client is a relay")


def _is_node(name: object) -> bool:
    """Whether a name, in any script, can be printed and can be the name of a file."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 200
        and visible_name(name) == name
        and name == name.strip()
        and not {"/", "\\"} & {*name}
    )


def _file(inbox: Path, name: str, digest: str, limits: InboxLimits, before: int) -> bytes:
    """The bytes of a message, of an inbox of which `before` were read."""
    path = locate(inbox, name)
    size = path.stat().st_size
    if size > limits.message_bytes or before + size > limits.bytes:
        raise UserError(
            f"{path} brings the inbox above its limit of {limits.bytes / 2**30:g} GiB, "
            f"{limits.message_bytes / 2**30:g} GiB a message",
            hint="record fewer rounds, or fewer clients",
        )
    with open(path, "rb") as file:
        data = file.read(size + 1)
    if sha256(data).hexdigest() != digest:
        raise UserError(
            f"{path} is not the file that was recorded: its SHA-256 differs", hint="copy the inbox once more"
        )
    return data


def _arrays(inbox: Path, name: str, data: bytes) -> dict[str, Any]:
    try:
        arrays: dict[str, Any] = load_arrays(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise UserError(
            f"{inbox / name}.safetensors is damaged: {error}", hint="write it with safetensors"
        ) from error
    return arrays


class _Counted:
    """Traffic, from the messages themselves."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str, str, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0])
        self._senders: dict[Any, set[str]] = defaultdict(set)

    def add(self, line: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        copies = max(1, len(line.get("receivers", ()))) if line["sender"] == str(Role.SERVER) else 1
        readers = tuple(sorted({s.partition("/")[0] for s in line["seen_by"]}))
        for kind in line["kinds"]:
            key = (line["round"], line["channel"], kind, line["sender"].partition("/")[0], readers)
            size = sum(n for name, n in sizes.items() if name.startswith(f"{kind}/"))
            self._counts[key][0] += copies
            self._counts[key][1] += copies * size
            self._senders[key].add(line["sender"])

    def lines(self) -> Iterator[dict[str, Any]]:
        for key, (messages, size) in self._counts.items():
            round, channel, kind, sender, readers = key
            line = {"traffic": kind, "round": round, "channel": channel, "sender": sender}
            line |= {"senders": len(self._senders[key]), "seen_by": list(readers)}
            yield line | {"messages": messages, "bytes": size}
