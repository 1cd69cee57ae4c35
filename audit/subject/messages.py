"""Which recorded messages an audit reads: all of some kinds, or the latest; who was heard when, and for what."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from fl.artifact import SERVER, Artifact, Channel, Party
from fl.kinds import Kind
from fl.provenance import Provenance
from fl.recorder import manifest, read


def messages(folder: Path, wanted: Collection[Kind], rounds: Literal["latest", "all"]) -> list[Artifact]:
    """Recorded artifacts of these kinds, in the order of the manifest.

    Latest: every sender's latest message of each channel, and the broadcasts of those rounds. Raises UserError
    where the record is damaged.
    """
    newest: dict[tuple[str, str], int] = {}
    for line in manifest(folder):
        if "message" in line:
            key = (line["sender"], line["channel"])
            newest[key] = max(newest.get(key, -1), line["round"])
    last = {r for (sender, _), r in newest.items() if sender != str(SERVER)}

    def reads(line: Mapping[str, Any]) -> bool:
        if not set(wanted) & set(line["kinds"]):
            return False
        own = newest[(line["sender"], line["channel"])] == line["round"]
        return rounds == "all" or own or (line["sender"] == str(SERVER) and line["round"] in last)

    return read(folder, reads, wanted)


def kinds(folder: Path) -> set[Kind]:
    """Of all recorded messages."""
    return {Kind(k) for line in manifest(folder) if "message" in line for k in line["kinds"]}


def heard(folder: Path) -> dict[int, frozenset[int]] | None:
    """Round -> clients whose upload arrived; None where not every upload's sender was recorded.

    The traffic lines count all senders of a round, also those whose messages were not kept.
    """
    senders: dict[int, set[int]] = defaultdict(set)
    counted: dict[int, int] = defaultdict(int)
    for line in manifest(folder):
        if line["channel"] != Channel.UPLINK:
            continue
        if "traffic" in line:
            counted[line["round"]] = max(counted[line["round"]], line["senders"])
        elif (sender := Party.parse(line["sender"]).index) is not None:
            senders[line["round"]].add(sender)
    if any(len(senders[r]) < n for r, n in counted.items()):
        return None
    return {r: frozenset(found) for r, found in sorted(senders.items())}


def behind(folder: Path) -> dict[str, frozenset[int]]:
    """Artifact -> clients whose examples it is made of, as the recorder followed them (fl/provenance.py).

    A manifest that does not say is gone through message by message. What the server sent has no entry then
    where not every upload was recorded.
    """
    found, followed, whole = dict[str, frozenset[int]](), Provenance(), heard(folder) is not None
    for line in manifest(folder):
        if "message" not in line:
            continue
        sender, kinds = Party.parse(line["sender"]), [Kind(k) for k in line["kinds"]]
        to, seen = line.get("receivers", line["seen_by"]), line["seen_by"]
        own = followed.behind(line["round"], Channel(line["channel"]), sender, to, seen, kinds)
        if "behind" in line:
            own = {Kind(k): frozenset(clients) for k, clients in line["behind"].items()}
        elif sender.index is None and not whole:
            continue
        found |= {f"{line['message']}/{kind}": clients for kind, clients in own.items()}
    return found
