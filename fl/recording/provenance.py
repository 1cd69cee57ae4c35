"""Whose examples are behind each message, followed from message to message as they cross the wire.

A client's message is made of its own examples, and of those of the clients whose work was handed to it in a
relay. What the server sends is made of the examples of the clients that it heard: an answer that was lost, or
rejected as not finite, never crossed the wire. What is made of what goes by families of kinds,

    models       made of models, updates, prototypes, logits, condensed images
    generators   made of generators, and of samples that the server trains one on
    samples      made of samples
    about        how many examples there are, of which classes, how well they fit (Kind.about): made of the same

    batches      what a layer made of one client's examples, and the server's gradient by it: made of models, and
                 of the client it goes to; who else is in the server's model, its method says (note_pooling)

so a client that once sent two samples, or a label count, is not behind the model that others train. A mediator
keeps what is handed on through it, so a client whose work it saw has been heard.

Only the auditor's truth reads this (audit/observer/truth.py); no party of the federation is told.
"""

from collections import defaultdict
from collections.abc import Iterable

from fedaudit.fl.artifact import Channel, Party, Role, Route
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.tree import Tree

Clients = frozenset[int]
_NOBODY: Clients = frozenset()
_MODELS, _GENERATORS, _SAMPLES, _ABOUT, _BATCHES = "models", "generators", "samples", "about", "batches"
_OTHERS = {
    Kind.GAN_G: _GENERATORS,
    Kind.GAN_D: _GENERATORS,
    Kind.SEED_SAMPLES: _SAMPLES,
    Kind.MASHED_BATCH: _SAMPLES,
    Kind.SMASHED: _BATCHES,
    Kind.SMASHED_GRADIENT: _BATCHES,
}


def _name_family(kind: Kind) -> str:
    return _ABOUT if kind.about or kind.control_plane else _OTHERS.get(kind, _MODELS)


class _Crowd:
    """Clients that only become more: each is added once, and who they are is one object until there are more."""

    def __init__(self, clients: Iterable[int] = ()) -> None:
        self._clients, self._listed = set(clients), _NOBODY

    def add(self, clients: Iterable[int]) -> None:
        self._clients.update(clients)

    def list(self) -> Clients:
        if len(self._listed) < len(self._clients):
            self._listed = frozenset(self._clients)
        return self._listed


class Provenance:
    """Told of every message in the order they cross, it says which clients are behind it."""

    def __init__(self) -> None:
        self._heard: dict[str, _Crowd] = defaultdict(_Crowd)
        # behind what a client was given
        self._handed: dict[tuple[int | None, str], Clients] = defaultdict(frozenset)
        # a round, and who is behind its uploads that are only summed
        self._summed = -1, _Crowd()

    def behind(self, route: Route, kinds: Iterable[Kind]) -> dict[Kind, Clients]:
        """The clients behind each kind of content of one message."""
        round, channel, sender, receivers, seen_by = route
        found = {kind: self._trace_senders(round, sender, _name_family(kind)) for kind in kinds}
        if sender.role != Role.CLIENT:
            own = [p.index for p in map(Party.parse, receivers) if p.index is not None]
            heard = self._heard[_MODELS].list()
            of_batch = heard if heard.issuperset(own) else heard.union(own)
            found |= {kind: of_batch for kind in found if _name_family(kind) == _BATCHES}
        relayed = channel == Channel.RELAY
        for kind, clients in found.items():
            family = _name_family(kind)
            for party in map(Party.parse, receivers):
                if party.role == Role.CLIENT:
                    self._handed[party.index, family] = clients if relayed else _NOBODY
            if sender.role == Role.CLIENT and sender.index is not None:
                if channel == Channel.UPLINK or any(s.startswith(Role.MEDIATOR) for s in seen_by):
                    self._heard[family].add(clients)
                if channel == Channel.UPLINK and not seen_by:
                    if self._summed[0] != round:
                        self._summed = round, _Crowd()
                    self._summed[1].add(clients)
        return found

    def _trace_senders(self, round: int, sender: Party, family: str) -> Clients:
        if sender.role != Role.CLIENT:
            heard = self._heard[family].list()
            return heard | self._heard[_SAMPLES].list() if family == _GENERATORS else heard
        if sender.index is None:  # a sum
            return self._summed[1].list() if self._summed[0] == round else _NOBODY
        return self._handed[sender.index, family] | {sender.index}

    def note_pooling(self, clients: Iterable[int]) -> None:
        """The server trained a model on these clients' examples itself, with nothing sent."""
        self._heard[_MODELS].add(clients)

    def note_restart(self) -> None:
        """The model begins again from its first weights: nothing that was heard is in it."""
        self._heard[_MODELS] = _Crowd()

    def state(self) -> Tree:
        """All that is known so far, for a checkpoint."""
        round, summed = self._summed
        return {
            "heard": {family: sorted(crowd.list()) for family, crowd in self._heard.items()},
            "handed": [[k, family, sorted(clients)] for (k, family), clients in self._handed.items()],
            "summed": [round, sorted(summed.list())],
        }

    def load(self, state: Tree) -> None:
        """Go on from what state() gave."""
        self._heard.clear()
        self._heard |= {family: _Crowd(clients) for family, clients in state["heard"].items()}
        self._handed.clear()
        self._handed |= {(k, family): frozenset(clients) for k, family, clients in state["handed"]}
        round, summed = state["summed"]
        self._summed = int(round), _Crowd(summed)
