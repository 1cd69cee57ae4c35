"""Constant messages: those that come out the same whoever stands in the place of their sender's people.

A client's code may send back what it got, or a constant. No attack can say how many people such a message
exposes, since no leak can be planted in it. So the code is asked: it is played with the same draws and other
people, of other numbers and class mixes and never none, and every recorded message of a kind has to come out
again to the byte, of every client, in every round that was recorded; so has the play with the client's own. Other
people are the auxiliary ones, where there are some, else other clients'. ENOUGH different sets of them make a
kind constant; fewer, as where nobody else holds examples or all are of one class, leave that open, and their
number is said. The first message that comes out otherwise ends it, and for code that trains that is the first of
all, played with two people. The code is imported anew for that: what it remembers of a client would come out
again whatever the client is played with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index, message_of
from fedaudit.audit.case.case import ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.audit.observer.check import ENOUGH, Check, ConstantKind, Seen
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.foreign import find, importing_anew, name_code
from fedaudit.fl.runtime.tree import to_numpy

FEWEST, MOST_OF_CLASS = 2, 20  # people that a client is played with
SPREAD, MIX = 0.3, 0.7  # of numbers around the client's own (log-normal), and of shares of classes (Dirichlet)
TRIES = 20  # to draw a set that was not played before
MOST_PLAYED = 5000  # visits; where it would take more, nothing is said

Rows = NDArray[np.int64]
Upload = Mapping[Kind, Artifact]


class ConstantMessages(Check):
    """Every kind whose recorded messages do not depend on their senders' people, as far as they were played."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if lab is None or federation.artifacts is None or not federation.simulated:
            return
        kinds = {*federation.card.uplink, *federation.card.downlink}
        latest = messages(federation.artifacts, kinds, "latest")
        if not (first := _list_uploads(latest)[:1]):
            return
        if not _play(lab, latest, first, OtherPeople(federation, lab), 1):
            return
        recorded = messages(federation.artifacts, kinds, "all")
        uploads = _list_uploads(recorded)
        with importing_anew([name := name_code(lab.method)]):
            forgetful = replace(lab, method=find(name)(lab.method.config))  # type: ignore[operator]
            plays = _play(forgetful, recorded, uploads, OtherPeople(federation, lab), ENOUGH)
        for kind, number in sorted(plays.items()):
            rounds = sorted({u[kind].round for u in uploads if kind in u})
            yield ConstantKind(kind=str(kind), rounds=tuple(rounds), plays=number)


@dataclass(frozen=True)
class OtherPeople:
    """Sets of people to play clients with, no one twice where there are others."""

    federation: ObservedFederation
    lab: Lab
    drawn: set[frozenset[int]] = field(default_factory=set)

    def draw(self, client: int, number: int) -> list[Rows]:
        """At least so many sets of rows, of which some are new: a few people, those of each class, and mixes.

        None where there is nobody else, or all are of one class though there are more: then no mix is another.
        """
        pool = self._list_others(client)
        data = self.lab.holdings.data
        labels = data.group(data.train)[pool]
        classes = np.unique(labels)
        if len(classes) < min(2, len(data.groups)):
            return []
        rng = self.federation.streams.numpy("other people", client, len(self.drawn))
        few = rng.permutation(pool)[:FEWEST]
        of_class = [rng.permutation(pool[labels == c])[:MOST_OF_CLASS] for c in classes]
        found = [few, *of_class]
        self.drawn.update(frozenset(rows.tolist()) for rows in found)
        own = len(self.lab.holdings.parts[client])
        while len(found) <= max(number, len(of_class) + 1):
            mixes = (self._mix(pool, labels, classes, own, rng) for _ in range(TRIES))
            rows = next((m for m in mixes if frozenset(m.tolist()) not in self.drawn), None)
            if rows is None:
                break
            self.drawn.add(frozenset(rows.tolist()))
            found.append(rows)
        return found

    def _list_others(self, client: int) -> Rows:
        """Auxiliary people where there are some, else other clients'."""
        if len(auxiliary := self.federation.examples.auxiliary):
            return np.asarray(auxiliary, np.int64)
        others = [np.asarray(rows, np.int64) for k, rows in self.lab.owned.items() if k != client]
        return np.concatenate(others) if others else np.zeros(0, np.int64)

    @staticmethod
    def _mix(pool: Rows, labels: Rows, classes: Rows, own: int, rng: np.random.Generator) -> Rows:
        """About as many people as the client has, of drawn shares of classes; any number where there are few."""
        number = round(max(1, own) * float(np.exp(rng.normal(0, SPREAD))))
        if number > len(pool) // 2:
            number = int(rng.integers(1, len(pool) + 1))
        wanted = rng.multinomial(max(1, number), rng.dirichlet(np.full(len(classes), MIX)))
        return np.concatenate(
            [rng.permutation(pool[labels == c])[:n] for c, n in zip(classes, wanted, strict=True)]
        )


def _list_uploads(recorded: Sequence[Artifact]) -> list[Upload]:
    """Messages of single clients, whole."""
    found: dict[str, dict[Kind, Artifact]] = {}
    for a in recorded:
        if a.channel == Channel.UPLINK and a.sender.role == Role.CLIENT and a.sender.index is not None:
            found.setdefault(message_of(a), {})[a.kind] = a
    return list(found.values())


def _play(
    lab: Lab, recorded: Sequence[Artifact], uploads: Sequence[Upload], people: OtherPeople, number: int
) -> dict[Kind, int]:
    """Kinds of which each of these uploads comes out the same, and with how many different sets of other people.

    About `number` sets in all are played. Counted are no more than if every upload had been played with as few as
    the one with the fewest: 0 where one cannot be played at all. Empty once every kind has come out otherwise.
    """
    sets: dict[Kind, list[set[frozenset[int]]]] = {k: [] for u in uploads for k in u}  # of each upload
    found, visits = index(recorded), 0
    for upload in uploads:
        like = next(iter(upload.values()))
        client, received = like.sender.number, find_received_message(found, like)
        others = people.draw(client, -(-number // len(uploads)))
        for kind in sets.keys() & upload.keys():
            sets[kind].append(set())
        own = lab.holdings.parts[client]
        for rows in [*others[:1], own, *others[1:]] if others else []:
            visits += 1
            if not sets or visits > MOST_PLAYED:
                return {}
            parts = list(lab.holdings.parts)
            parts[client] = rows
            try:
                sent = lab.holding(parts=parts).replay(like, received) or {}
            except Exception:  # somebody's code that cannot work on these  # noqa: BLE001
                return {}
            for kind in sets.keys() & upload.keys():
                if kind not in sent or not _is_equal(upload[kind], to_numpy(sent[kind])):
                    del sets[kind]
                elif rows is not own:
                    sets[kind][-1].add(frozenset(rows.tolist()))
    return {kind: min(len(set().union(*some)), len(some) * min(map(len, some))) for kind, some in sets.items()}


def _is_equal(recorded: Artifact, sent: Mapping[str, NDArray[np.generic]]) -> bool:
    """To the byte, names included."""
    if recorded.payload.keys() != sent.keys():
        return False
    pairs = [(np.asarray(recorded.payload[name]), np.asarray(value)) for name, value in sent.items()]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)
