"""Which recorded messages an audit reads: all of some kinds, or the latest; and who was heard when."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from fl.artifact import SERVER, Artifact, Channel, Party
from fl.kinds import Kind
from fl.recorder import manifest, read


def messages(folder: Path, kinds: Collection[Kind], rounds: Literal["latest", "all"]) -> list[Artifact]:
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

    def wanted(line: Mapping[str, Any]) -> bool:
        if not set(kinds) & set(line["kinds"]):
            return False
        own = newest[(line["sender"], line["channel"])] == line["round"]
        return rounds == "all" or own or (line["sender"] == str(SERVER) and line["round"] in last)

    return [a for a in read(folder, wanted) if a.kind in kinds]


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
