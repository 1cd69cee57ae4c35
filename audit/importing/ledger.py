"""The ledger of a recorded federation: its operator's own, or what the claimed protections would have entered.

Either way it is a declaration: nobody could see the noise being added. Without a claim every message is listed as
released in clear.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from fedaudit.audit.accounting.recompute import KindTraffic, LedgerReplay, uploads
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import is_from_client, manifest, unread
from fedaudit.fl.runtime.errors import UserError

Sort = tuple[int, Channel, Kind]  # of messages: round, channel and kind
BROUGHT = "stated-ledger.jsonl"  # the operator's own, as `fedaudit import` copied it


def derive_ledger(artifacts: Path, replay: LedgerReplay) -> list[Release]:
    """Every release that follows from the claimed protections, one line for each message of a client.

    Raises UserError where none can be derived.
    """
    traffic, sent = uploads(list(manifest(artifacts))), _count_messages(artifacts)
    crossed: dict[Sort, list[KindTraffic]] = defaultdict(list)
    for x in traffic:
        crossed[x.round, x.channel, x.kind].append(x)
    common, own = dict[Release, None](), list[Release]()  # lines of all clients' noise come once
    heard = replay.federation.participation.heard
    for k in range(replay.federation.clients):
        present = {x.round for x in traffic if heard is None or k in heard.get(x.round, frozenset())}
        times = {key: _count_own(k, some, sent[key]) for key, some in crossed.items() if key[0] in present}
        for nth in range(max(times.values(), default=0)):
            again = [x for key, n in times.items() if n > nth for x in crossed[key]]
            made = replay.list_lines(again, {x.round for x in again} if nth else present, k)
            if made is None:
                raise UserError(
                    "no ledger entry of the claimed protections can be derived for these messages",
                    hint="check subject.protections; they must act on kinds that clients sent",
                    key="subject.protections",
                )
            common |= dict.fromkeys(r for r in made if r.sender.endswith("/*"))
            own += [r for r in made if not r.sender.endswith("/*")]
    return sorted([*common, *own], key=lambda r: r.round)


def _count_messages(artifacts: Path) -> dict[Sort, Counter[str]]:
    """Messages of each client that were recorded, read or not."""
    found: dict[Sort, Counter[str]] = defaultdict(Counter)
    for line in chain(manifest(artifacts), unread(artifacts)):
        if "traffic" not in line and is_from_client(line):
            for kind in line["kinds"]:
                found[line["round"], Channel(line["channel"]), Kind(kind)][line["sender"]] += 1
    return found


def _count_own(client: int, counted: Sequence[KindTraffic], recorded: Counter[str]) -> int:
    """How often a client sent it: as was recorded; where not all was, its share of what was counted at least."""
    messages, senders = sum(x.messages for x in counted), max(x.senders for x in counted)
    share = -(-messages // max(1, senders)) if recorded.total() < messages else 0
    return max(recorded[str(Party.client(client))], share)
