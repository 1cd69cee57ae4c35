"""Which recorded messages an audit reads: all of some kinds, or the latest; who was heard when, and for what."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party, Route
from fedaudit.fl.kinds import MODEL, Kind
from fedaudit.fl.recording.provenance import Provenance
from fedaudit.fl.recording.recorder import (
    SET_ASIDE,
    is_from_client,
    lines,
    manifest,
    read,
    read_set_aside,
    unread,
)

MOST_BYTES = 2**30  # of models and their like that are read at once


def messages(folder: Path, wanted: Collection[Kind], rounds: Literal["latest", "all"]) -> list[Artifact]:
    """Recorded artifacts of these kinds, in the order of the manifest.

    Latest: every sender's latest message of each channel, the latest sum of each number of clients, and the
    broadcasts of those rounds. All: of models and their like as many rounds as fit MOST_BYTES, spread evenly.
    What was set aside comes last, of all rounds.
    Raises UserError where the record is damaged.
    """
    newest: dict[tuple[str, ...], int] = {}
    for line in manifest(folder):
        if "message" in line:
            newest[_key(line)] = max(newest.get(_key(line), -1), line["round"])
    last = {r for (sender, *_), r in newest.items() if sender != str(SERVER)}

    def reads(line: Mapping[str, Any]) -> bool:
        if not set(wanted) & set(line["kinds"]):
            return False
        own = newest[_key(line)] == line["round"]
        return rounds == "all" or own or (line["sender"] == str(SERVER) and line["round"] in last)

    light, kept = (
        [k for k in wanted if k.arrays != MODEL],
        _choose_rounds(folder, wanted) if rounds == "all" else None,
    )
    aside = read_set_aside(folder) if SET_ASIDE in wanted else []
    if kept is None:
        return [*read(folder, reads, wanted), *aside]
    found = read(folder, lambda line: reads(line) and line["round"] in kept, wanted)
    found += read(folder, lambda line: bool(set(light) & set(line["kinds"])) and line["round"] not in kept, light)
    place = {line["message"]: i for i, line in enumerate(manifest(folder)) if "message" in line}
    return [*sorted(found, key=lambda a: place[a.id.rpartition("/")[0]]), *aside]


def _key(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Messages of which the newest is the latest: an upload that a sum hides is another than one that is read."""
    clients = len(line.get("behind", {}).get(Kind.AGGREGATE, ()))
    return line["sender"], line["channel"], "hidden" * (not line["seen_by"]), str(clients)


def _choose_rounds(folder: Path, wanted: Collection[Kind]) -> set[int] | None:
    """Rounds, spread evenly, whose models and their like fit MOST_BYTES; None where all rounds' do."""
    sizes: dict[int, int] = defaultdict(int)
    heavy = {k for k in wanted if k.arrays == MODEL}
    for line in manifest(folder):
        file = folder / f"{line.get('message')}.safetensors"
        if "message" in line and heavy & set(line["kinds"]) and file.is_file():
            sizes[line["round"]] += file.stat().st_size
    total, rounds = sum(sizes.values()), sorted(sizes)
    if total <= MOST_BYTES:
        return None
    fit = max(1, len(rounds) * MOST_BYTES // total)
    return {rounds[-1 - i * len(rounds) // fit] for i in range(fit)}


def kinds(folder: Path) -> set[Kind]:
    """Of all recorded messages; those that were set aside are numbers of one kind."""
    aside = {SET_ASIDE} if any(unread(folder)) else set[Kind]()
    return aside | {Kind(k) for line in manifest(folder) if "message" in line for k in line["kinds"]}


def is_anybody_behind(folder: Path) -> bool:
    """Whether anything that was sent is made of a client's examples; so too where the record does not tell."""
    return any(line.get("behind", True) for line in manifest(folder) if "traffic" in line)


def read_arrivals(folder: Path) -> dict[int, frozenset[int]] | None:
    """Round -> clients of whom a message arrived; None where not every message's sender was recorded.

    The traffic lines count all senders of a round, also those whose messages were not kept.
    """
    senders: dict[int, set[int]] = defaultdict(set)
    counted: dict[int, int] = defaultdict(int)
    for line in chain(manifest(folder), unread(folder)):
        if not is_from_client(line):
            continue
        if "traffic" in line:
            counted[line["round"]] = max(counted[line["round"]], line["senders"])
        elif (sender := Party.parse(line["sender"]).index) is not None:
            senders[line["round"]].add(sender)
    if any(len(senders[r]) < n for r, n in counted.items()):
        return None
    return {r: frozenset(found) for r, found in sorted(senders.items())}


def behind(folder: Path) -> dict[str, frozenset[int]]:
    """Artifact -> clients whose examples it is made of, as the recorder followed them (recording/provenance.py).

    A manifest that does not say is gone through message by message. What the server sent has no entry then
    where not every upload was recorded.
    """
    found, followed, whole = dict[str, frozenset[int]](), Provenance(), read_arrivals(folder) is not None
    once = dict[frozenset[int], frozenset[int]]()  # what each of many clients is sent is made of the same ones'
    for line in lines(folder):
        if "message" not in line and "unread" not in line:
            continue
        sender, kinds = Party.parse(line["sender"]), [Kind(k) for k in line["kinds"]]
        to, seen = tuple(line.get("receivers", line["seen_by"])), tuple(line["seen_by"])
        own = followed.behind(Route(line["round"], Channel(line["channel"]), sender, to, seen), kinds)
        if "behind" in line:
            own = {Kind(k): frozenset(clients) for k, clients in line["behind"].items()}
        elif sender.index is None and not whole:
            continue
        if "unread" in line:
            found[f"{line['unread']}/{SET_ASIDE}"] = frozenset[int]().union(*own.values())
            continue
        found |= {f"{line['message']}/{kind}": once.setdefault(who, who) for kind, who in own.items()}
    return found
