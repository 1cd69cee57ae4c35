"""The ledger of a recorded federation: its operator's own, or what the claimed protections would have entered.

Either way it is a declaration: nobody could see the noise being added. Without a claim every message is listed as
released in clear.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch

from fedaudit.audit.accounting.verify import KindTraffic, list_own_kinds, list_traffic
from fedaudit.audit.case.case import ObservedFederation
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import MODEL, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.ledger import from_fields as parsed
from fedaudit.fl.method import Method
from fedaudit.fl.model import State
from fedaudit.fl.recording.recorder import is_from_client, manifest, unread
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.wire.protection import Message, Payload, anew
from fedaudit.fl.wire.wire import Wire

Sort = tuple[int, Channel, Kind]  # of messages: round, channel and kind
BROUGHT = "stated-ledger.jsonl"  # the operator's own, as `fedaudit import` copied it
MANY = 1_000_000  # examples behind a stand-in: more than any threshold asks for
WHOLE = {"classes", "counts", "count", "index", "labels", "steps", "version", "cluster", "present"}


@dataclass
class Kept:
    """A ledger in memory; the wire writes to it as to a file."""

    lines: list[Release] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(parsed(parse_json(line)))


@dataclass(frozen=True)
class LedgerReplay:
    """The wire of a federation, to which stand-ins are sent; `initial` are the weights before round 0."""

    federation: ObservedFederation
    method: Method | None
    initial: State | None

    def list_lines(
        self, traffic: Collection[KindTraffic], rounds: Collection[int], client: int
    ) -> list[Release] | None:
        """What the ledger must say of this client's messages in these rounds; None where it cannot be told."""
        kept, known = Kept(), self.federation
        sampling = known.participation.sampling
        law = sampling(client)
        wire = Wire(known.card, Streams(0), anew(known.protections), None, kept)  # type: ignore[arg-type]
        crossed: dict[tuple[int, Channel], list[KindTraffic]] = defaultdict(list)
        for x in traffic:
            crossed[x.round, x.channel].append(x)
        settled, reference = (
            list_own_kinds(self.method),
            {Kind.GLOBAL_MODEL: self._make_stand_in(Kind.GLOBAL_MODEL)},
        )
        try:
            for t in sorted(rounds):
                wire.accounts.note_draw(
                    t, (client,), lambda k: law if k == client else known.participation.sampling(k)
                )
                for channel in (Channel.UPLINK, Channel.RELAY):
                    here = crossed.get((t, channel), ())
                    message: Message = {x.kind: self._make_stand_in(x.kind) for x in here}
                    if channel == Channel.UPLINK and message:
                        wire.uplink(t, message, client, reference, settled=settled)
                        came = max(x.senders for x in here)
                        for other in _list_others(client, came) if wire.accounts.has_shares else ():
                            wire.uplink(t, message, other, reference, settled=settled)
                    elif message:
                        wire.relay(t, message, client, (client + 1) % max(2, known.clients), settled=settled)
                if (t, Channel.OBSERVED) in crossed:
                    wire.observe(t, client, 0.0, {}, {})
                if wire.chain.central is not None:
                    before = reference[Kind.GLOBAL_MODEL]
                    wire.average(t, before, before, 0, known.clients)
                wire.end_round(t)
        except (UserError, KeyError, RuntimeError, IndexError, ValueError):
            return None
        mine = Party.client(client)
        return [r for r in kept.lines if r.sender in (str(mine), f"{mine.role}/*")]

    def _make_stand_in(self, kind: Kind) -> Payload:
        """A tiny payload of a kind: the arrays' names and types, and as many rows as little as it takes."""
        if dict(kind.arrays) == MODEL:
            whole = {k: v for k, v in (self.initial or {}).items() if not v.is_floating_point()}
            return {"w": torch.zeros(3), **whole}
        sizes = {"C": max(1, len(self.federation.data.classes)), "b": 1, "c": 2, "m": 2, "D": 3, "J": 1}
        made = {}
        for name, shape in kind.arrays.items():
            if shape.endswith(" or absent"):
                continue
            first = shape.partition(" or ")[0].strip("[]")
            size = [sizes.get(part.strip(), 2) for part in first.split(",") if part.strip()]
            made[name] = torch.ones(size, dtype=torch.int64 if name in WHOLE else torch.float32)
            if name in ("count", "counts"):
                made[name] *= MANY
            if name == "classes":
                made[name] = torch.arange(size[0])
        return made


def _list_others(client: int, came: int) -> list[int]:
    """Whoever else came, of a round of so many: noise that they add up to counts them, not who they are."""
    return [k for k in range(came + 1) if k != client][: came - 1]


def derive_ledger(artifacts: Path, replay: LedgerReplay) -> list[Release]:
    """Every release that follows from the claimed protections, one line for each message of a client.

    Raises UserError where none can be derived.
    """
    traffic, sent = list_traffic(manifest(artifacts)), _count_messages(artifacts)
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
