"""The lines that a ledger must hold, made once more by the wire from what crossed it.

Every round's messages are sent again as stand-ins: the same kinds with tiny arrays, through the same
protections and under the same law of participation, into a ledger of our own. What a protection lists does
not depend on the numbers in a message, but for thresholds, which the counts of stand-ins pass. Lines of a
method's own noise follow from its settings; how many visits there were does not, so such a ledger stays
declared.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from fedaudit.audit.case.case import ObservedFederation
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.families.visit_noise import NoiseConfig, line_of
from fedaudit.fl.kinds import MODEL, Kind
from fedaudit.fl.ledger import EVERYONE, Release
from fedaudit.fl.ledger import from_fields as parsed
from fedaudit.fl.method import Method
from fedaudit.fl.model import State
from fedaudit.fl.recording.recorder import is_from_client
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.wire.protection import Message, Payload, anew
from fedaudit.fl.wire.wire import Wire

MANY = 1_000_000  # examples behind a stand-in: more than any threshold asks for
WHOLE = {"classes", "counts", "count", "index", "labels", "steps", "version", "cluster", "present"}


class KindTraffic(NamedTuple):
    """One kind that crossed in one round and direction, from the manifest."""

    round: int
    channel: Channel
    kind: Kind
    senders: int
    messages: int
    seen_by: tuple[str, ...]


@dataclass
class Kept:
    """A ledger in memory; the wire writes to it as to a file."""

    lines: list[Release] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(parsed(parse_json(line)))


def uploads(manifest: Collection[dict[str, Any]]) -> list[KindTraffic]:
    """What clients sent that tells of data, from the manifest's traffic lines."""
    found = []
    for line in manifest:
        if "traffic" not in line or not is_from_client(line):
            continue
        kind = Kind(line["traffic"])
        if not kind.control_plane and kind != Kind.AGGREGATE:
            seen = tuple(line["seen_by"])
            counted = (int(line["senders"]), int(line["messages"]))
            found.append(KindTraffic(int(line["round"]), Channel(line["channel"]), kind, *counted, seen))
    return found


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
        settled, reference = own_kinds(self.method), {Kind.GLOBAL_MODEL: self._make_stand_in(Kind.GLOBAL_MODEL)}
        try:
            for t in sorted(rounds):
                wire.accounts.note_draw(t, (client,), lambda k: law if k == client else sampling(k))
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
        sizes = {"C": len(self.federation.data.classes), "b": 1, "c": 2, "m": 2, "D": 3, "J": 1}
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


def own_kinds(method: Method | None) -> frozenset[Kind]:
    """Kinds that the method itself noises and lists, visit by visit, before they cross the wire."""
    settled = getattr(method, "list_protected_kinds", None)
    return frozenset(settled(list(Kind))) if settled else frozenset()


def own_line(method: Method | None, r: Release) -> Release | None:
    """What such a line says of noise and clip by the method's settings; None where they do not tell."""
    noise = getattr(getattr(method, "config", None), "noise", None)
    index = r.sender.partition("/")[2]
    if not isinstance(noise, NoiseConfig) or r.kind not in own_kinds(method) or not index.isdecimal():
        return None
    return line_of(Kind(r.kind), r.round, int(index), noise, EVERYONE, "")


def same_law(line: Release, law: Drawn) -> bool:
    """Whether a line claims no more of the sampling than the law gives."""
    return line.sampling == law.sampling and line.sample_rate >= law.rate * (1 - 1e-12)
