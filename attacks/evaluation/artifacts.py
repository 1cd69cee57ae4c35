"""Artifacts with an index: what was sent by whom, in which round, of which kind, is looked up, not searched for.

A federation of a thousand clients sends tens of thousands of messages. An attack that walks over all of them for
each of them takes minutes where one that looks them up takes a second. So whoever asks about single messages in a
loop begins with `artifacts = index(artifacts)`, which costs nothing where that was done before.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.sums import find_kind
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind

_FIELDS: Mapping[str, Callable[[Artifact], Hashable]] = {
    "round": lambda a: a.round,
    "kind": lambda a: a.kind,
    "sender": lambda a: a.sender,
    "channel": lambda a: a.channel,
    "origin": lambda a: a.origin,
    "message": lambda a: message_of(a),
}
_Keys = tuple[Hashable, ...]
_Newest = dict[str | None, tuple[list[int], list[int]]]  # reader -> rounds in order, place of the first of each


def message_of(artifact: Artifact) -> str:
    """The name of the message that an artifact came in: its identifier without the kind."""
    return artifact.id.rpartition("/")[0]


class Artifacts(tuple[Artifact, ...]):
    """Artifacts in the order given, which every answer keeps.

    For each combination of fields that is asked for, a table is made once, in one pass.
    """

    def select(
        self,
        *,
        round: int | None = None,
        kind: Kind | None = None,
        sender: Party | None = None,
        channel: Channel | None = None,
        origin: str | None = None,
        message: str | None = None,
        seen_by: Collection[str] | None = None,
    ) -> list[Artifact]:
        """Those with all these fields; of the readers `seen_by` ("client", "client/3") one is enough."""
        asked: dict[str, Hashable] = {"round": round, "kind": kind, "sender": sender, "channel": channel}
        asked |= {"origin": origin, "message": message}
        key = {name: value for name, value in asked.items() if value is not None}
        table = self._table(tuple(key), seen_by is not None)
        if seen_by is None:
            return [self[i] for i in table.get(tuple(key.values()), ())]
        places = {i for reader in seen_by for i in table.get((*key.values(), reader), ())}
        return [self[i] for i in sorted(places)]

    def find_first(
        self,
        *,
        round: int | None = None,
        kind: Kind | None = None,
        sender: Party | None = None,
        origin: str | None = None,
        message: str | None = None,
    ) -> Artifact | None:
        """The first with all these fields; None where there is none."""
        found = self.select(round=round, kind=kind, sender=sender, origin=origin, message=message)
        return found[0] if found else None

    def newest(self, kind: Kind, round: int, seen_by: Collection[str] | None = None) -> Artifact | None:
        """The newest of a kind in that round or before it, by bisection; of several in one round the first.

        With `seen_by`, of those that one of these names could read.
        """
        if kind not in self._by_age:
            self._by_age[kind] = self._in_order(kind)
        best: tuple[int, int] | None = None  # the round, and minus the place
        for reader in (None,) if seen_by is None else seen_by:
            rounds, places = self._by_age[kind].get(reader, ([], []))
            if until := bisect_right(rounds, round):
                candidate = rounds[until - 1], -places[until - 1]
                best = candidate if best is None else max(best, candidate)
        return None if best is None else self[-best[1]]

    @cached_property
    def _tables(self) -> dict[tuple[tuple[str, ...], bool], dict[_Keys, list[int]]]:
        return {}

    @cached_property
    def _by_age(self) -> dict[Kind, _Newest]:
        return {}

    def _table(self, names: tuple[str, ...], by_reader: bool) -> Mapping[_Keys, Sequence[int]]:
        """Values of these fields, and a reader where asked for, to places in order."""
        if (names, by_reader) not in self._tables:
            table: dict[_Keys, list[int]] = {}
            fields = [_FIELDS[name] for name in names]
            for i, a in enumerate(self):
                key = tuple(field(a) for field in fields)
                for more in dict.fromkeys(a.seen_by) if by_reader else [None]:
                    table.setdefault(key if more is None else (*key, more), []).append(i)
            self._tables[names, by_reader] = table
        return self._tables[names, by_reader]

    def _in_order(self, kind: Kind) -> _Newest:
        first: dict[str | None, dict[int, int]] = {}
        for i in self._table(("kind",), False).get((kind,), ()):
            a = self[i]
            for reader in (None, *a.seen_by):
                first.setdefault(reader, {}).setdefault(a.round, i)
        return {reader: (sorted(places), [places[r] for r in sorted(places)]) for reader, places in first.items()}


def index(artifacts: Iterable[Artifact]) -> Artifacts:
    """The same artifacts with an index; themselves where they have one."""
    return artifacts if isinstance(artifacts, Artifacts) else Artifacts(artifacts)


def list_senders(view: Iterable[Artifact], *kinds: Kind) -> dict[str, NDArray[Any]]:
    """Clients that sent something of these kinds, as recorded: `senders` [s], and which kind was `sent` [s]."""
    sent = {(a.sender.index, find_kind(a).value) for a in view if a.kind in kinds and a.origin == "recorded"}
    pairs = sorted((k, kind) for k, kind in sent if k is not None)
    return {
        "senders": np.array([k for k, _ in pairs], np.int64),
        "sent": np.array([kind for _, kind in pairs], str),
    }
