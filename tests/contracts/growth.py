"""Views of any size, made of a tiny one, whose artifacts count how often somebody looks at them."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fedaudit.attacks.attack import Card
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party, Role
from fedaudit.fl.kinds import Kind

MOST = 4.5  # times the looks at four times the messages
REPLAYS = 2  # of each client, in each round
FIELDS = frozenset(f.name for f in dataclasses.fields(Artifact))


class Looked(Artifact):
    """An artifact that counts how often a field of any is read."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name in FIELDS:
            Looked.looks += 1
        return super().__getattribute__(name)


def looked(artifacts: Iterable[Artifact]) -> list[Artifact]:
    return [Looked(**{name: getattr(a, name) for name in FIELDS}) for a in artifacts]


def count(does: Callable[[], object]) -> int:
    """Looks at artifacts while something is done."""
    before = Looked.looks
    does()
    return Looked.looks - before


def sent(kind: Kind, client: int | None, round: int = 0, payload: Mapping[str, object] | None = None) -> Artifact:
    """From a client to the server, or from the server (None) to all clients."""
    sender, seen = (SERVER, "client") if client is None else (Party.client(client), "server")
    return Artifact(
        id=f"r{round}/{sender}/{kind}",
        kind=kind,
        channel=Channel.DOWNLINK if client is None else Channel.UPLINK,
        round=round,
        sender=sender,
        seen_by=(seen,),
        payload={k: np.array(v) for k, v in ({"count": 10} if payload is None else payload).items()},
    )


def grown(world: Sequence[Artifact], card: Card, clients: int, rounds: int) -> list[Artifact]:
    """The view with so many clients and so many times its rounds.

    Clients send what those of the world send, in turn. What was only replayed they also send themselves, and with
    it how many examples they have where the card reads that.
    """
    served = [a for a in world if a.sender.index is None]
    theirs: dict[int, list[Artifact]] = defaultdict(list)
    for a in world:
        if a.sender.index is not None:
            own = theirs[a.sender.index]
            if a.origin == "recorded" or sum(b.origin == a.origin for b in own) < REPLAYS:
                own.append(a)
    for k, own in theirs.items():
        _send(own, k, Kind.NUM_EXAMPLES in card.reads)
    span, view, names = length(world), list[Artifact](), list(theirs)
    for t in range(rounds):
        view += [_copy(a, f"again{t}", a.round + t * span) for a in served]
        for k in range(clients if names else 0):
            for a in theirs[names[k % len(names)]]:
                own_copy = dataclasses.replace(a, sender=Party.client(k), seen_by=_readers(a, k))
                view.append(_copy(own_copy, f"again{t}-{k}", a.round + t * span))
    return looked(view)


def length(world: Sequence[Artifact]) -> int:
    """Its rounds, from the first to the last."""
    return max(a.round for a in world) - min(a.round for a in world) + 1


def _send(own: list[Artifact], client: int, counts: bool) -> None:
    """Adds what was only replayed as if it had been sent, and the number of examples."""
    for kind in dict.fromkeys(a.kind for a in own):
        if all(a.origin != "recorded" for a in own if a.kind == kind):
            twin = next(a for a in own if a.kind == kind)
            own.append(dataclasses.replace(twin, id=f"{client}/{kind}", origin="recorded", note={}))
    if counts and all(a.kind != Kind.NUM_EXAMPLES for a in own):
        like = next(a for a in own if a.origin == "recorded")
        name = f"{like.id.rpartition('/')[0]}/{Kind.NUM_EXAMPLES}"
        own.append(dataclasses.replace(sent(Kind.NUM_EXAMPLES, client, like.round), id=name))


def _copy(a: Artifact, name: str, round: int) -> Artifact:
    return dataclasses.replace(a, id=f"{name}/{a.id}", round=round)


def _readers(a: Artifact, client: int) -> tuple[str, ...]:
    named = any(s.startswith(f"{Role.CLIENT}/") for s in a.seen_by)
    return (f"{Role.CLIENT}/{client + 1}",) if named else a.seen_by
