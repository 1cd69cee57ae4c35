"""Reach: which position could read which kind, by what a method and the protections say or by what was sent.

An adversary's view (view.py) is made of messages; before a run there are none. The same question is answered here
for kinds: what could stand in the view of each position.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedaudit.attacks.attack import Card
from fedaudit.fl.artifact import SERVER, Channel
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.threats.threat import Position
from fedaudit.fl.wire.protection import Protection


class Reach(NamedTuple):
    """One position that could read one kind."""

    position: Position
    kind: Kind


_READERS = {
    Channel.UPLINK: (Position.SERVER,),
    Channel.DOWNLINK: (Position.SERVER, Position.CLIENT),
    Channel.RELAY: (Position.NEXT_CLIENT,),
    Channel.RELEASE: (Position.SERVER, Position.PUBLIC),
    Channel.OBSERVED: (Position.SERVER,),
}
_RELAY_READERS = {"mediator": Position.MEDIATOR, "server": Position.SERVER}
_OWN = {  # what a position also has: what it was sent in other roles, and what it sent itself
    Position.CLIENT: {Channel.DOWNLINK, Channel.UPLINK, Channel.RELAY},
    Position.COLLUDING_CLIENTS: {Channel.DOWNLINK, Channel.UPLINK, Channel.RELAY},
    Position.NEXT_CLIENT: {Channel.DOWNLINK, Channel.RELAY},
    Position.MEDIATOR: {Channel.RELAY},
}


class ObservedTraffic(NamedTuple):
    """The kinds of each channel, and who reads them."""

    kinds: Mapping[Channel, tuple[Kind, ...]]
    hidden: bool = False  # secure aggregation: the server reads no single upload
    relay_readers: frozenset[Position] = frozenset()  # who reads relays besides the next client
    has_server: bool = True  # false where clients send to each other alone, as in a swarm

    @property
    def paths(self) -> Mapping[Reach, frozenset[Channel]]:
        """Every position with every kind that it could read of others, and by which channels; in their order."""
        found: dict[Reach, set[Channel]] = {}
        for channel in (Channel.UPLINK, Channel.RELAY, Channel.DOWNLINK, Channel.RELEASE, Channel.OBSERVED):
            for kind in self.kinds.get(channel, ()):
                for position in self._readers(channel, kind):
                    found.setdefault(Reach(position, kind), set()).add(channel)
        return {reach: frozenset(channels) for reach, channels in found.items()}

    @property
    def reaches(self) -> list[Reach]:
        """Every position with every kind that it could read of others, in the order of the channels."""
        return list(self.paths)

    @property
    def summed(self) -> frozenset[Kind]:
        """Kinds that a sum of uploads tells of; all that can be summed, where no upload was counted."""
        uploads = [k for k in self.kinds.get(Channel.UPLINK, ()) if k != Kind.AGGREGATE]
        return frozenset(k for k in uploads or Kind if k.summed is not Summed.NO)

    def _readers(self, channel: Channel, kind: Kind) -> tuple[Position, ...]:
        if channel == Channel.UPLINK and self.hidden and kind != Kind.AGGREGATE:
            return ()
        besides = (p for p in _RELAY_READERS.values() if channel == Channel.RELAY and p in self.relay_readers)
        readers = (*_READERS[channel], *besides)
        return readers if self.has_server else tuple(p for p in readers if p is not Position.SERVER)

    def visible(self, position: Position) -> set[Kind]:
        """All kinds that may be in its view, what it sent itself included."""
        own = {k for channel in _OWN.get(position, ()) for k in self.kinds.get(channel, ())}
        return own | {kind for reader, kind in self.reaches if reader == position}

    def missing(self, card: Card, title: str) -> str:
        """Why an attack can find nothing to read here, as a sentence; empty where it can.

        An attack that reads sums beside uploads finds in them the kinds that are summed.
        """
        seen = self.visible(card.threat.position)
        if Kind.AGGREGATE in card.also_reads and Kind.AGGREGATE in seen:
            seen = (seen - {Kind.AGGREGATE}) | self.summed
        where = f"that the {card.threat.position} could read".replace("_", " ")
        if lacking := [k for k in card.requires if k not in seen]:
            return f"{title} sends no {' or '.join(lacking)} {where}"
        if not card.pick_targets(seen):
            return f"{title} sends no {' or '.join(card.targets)} {where}"
        return ""


def predict_traffic(card: MethodCard, protections: Sequence[Protection], clock: bool = False) -> ObservedTraffic:
    """Before a run: what the method's card says, after the protections; and what a clock shows the server."""
    hidden = any(p.hides_single_uploads() for p in protections)
    up = (*card.uplink, Kind.AGGREGATE) if hidden else card.uplink
    kinds = {
        Channel.UPLINK: up,
        Channel.RELAY: card.relay,
        Channel.DOWNLINK: card.downlink,
        Channel.RELEASE: card.release,
        Channel.OBSERVED: card.observed if clock or card.timed else (),
    }
    return ObservedTraffic(kinds=kinds, hidden=hidden)


class Rounds(NamedTuple):
    """In which rounds a kind was sent, in which it was kept whole: the messages of everybody who sent it, and in
    which one of them was set aside unread."""

    sent: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()


def observed_rounds(lines: Iterable[Mapping[str, Any]]) -> Mapping[tuple[Channel, Kind], Rounds]:
    """After a run, of a manifest's lines; what nobody reads, or is made of nobody's examples, is left out."""
    senders: dict[tuple[Channel, Kind], dict[int, int]] = {}
    kept: dict[tuple[Channel, Kind], dict[int, set[str]]] = {}
    unread: dict[tuple[Channel, Kind], set[int]] = {}
    for line in lines:
        channel, round = Channel(line["channel"]), int(line["round"])
        if not line["seen_by"]:
            continue
        if "traffic" in line:
            if line.get("behind", True):
                of_kind = senders.setdefault((channel, Kind(line["traffic"])), {})
                of_kind[round] = max(of_kind.get(round, 0), int(line["senders"]))
        elif "unread" in line:
            for kind in line["kinds"]:
                unread.setdefault((channel, Kind(kind)), set()).add(round)
        else:
            for kind in line["kinds"]:
                kept.setdefault((channel, Kind(kind)), {}).setdefault(round, set()).add(line["sender"])
    return {
        path: Rounds(
            frozenset(of_kind),
            frozenset(
                r
                for r, n in of_kind.items()
                if len(kept.get(path, {}).get(r, ())) >= n and r not in unread.get(path, ())
            ),
            frozenset(unread.get(path, ())),
        )
        for path, of_kind in senders.items()
    }


def read_traffic(lines: Iterable[Mapping[str, Any]]) -> ObservedTraffic:
    """After a run: what crossed the wire, from the lines of a manifest that count it."""
    kinds: dict[Channel, dict[Kind, None]] = {c: {} for c in Channel}
    uploads, relay_readers, has_server = [], set[Position](), False
    for line in lines:
        if "traffic" in line:
            channel, kind = Channel(line["channel"]), Kind(line["traffic"])
            kinds[channel][kind] = None
            has_server |= channel == Channel.UPLINK or SERVER.role in (line.get("sender"), *line["seen_by"])
            if channel == Channel.RELAY:
                roles = {s.partition("/")[0] for s in line["seen_by"]}
                relay_readers |= {position for role, position in _RELAY_READERS.items() if role in roles}
            if channel == Channel.UPLINK and kind != Kind.AGGREGATE:
                uploads.append(bool(line["seen_by"]))
    return ObservedTraffic(
        kinds={c: tuple(k) for c, k in kinds.items()},
        hidden=bool(uploads) and not any(uploads),
        relay_readers=frozenset(relay_readers),
        has_server=has_server,
    )
