"""Batches of split learning as a server reads them: activations, and the first layers that made them.

Features of every example (FedGKT) are read as one batch; which layers made them the server does not know.

A client's part changes with every batch. Where the server hands it out and averages it (SplitFed) the weights of
a batch lie between those that the round began with and those that came back: in proportion to its place among the
client's batches. Where clients hand it on among themselves, a server has the first model, which everybody knows,
and the one that is released.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.artifacts import Artifacts, index
from fedaudit.attacks.evidence import is_replay
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind

Arrays = Mapping[str, NDArray[Any]]
HANDED, BETWEEN, RELEASED = "handed out", "between handed out and returned", "released"
UNUSED = "not used"
ARRAYS = {Kind.SMASHED: "activations", Kind.FEATURES: "features"}  # which of a message are a row for each example


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One message of activations, with the weights of the layers that made them."""

    artifact: Artifact
    weights: Arrays
    source: str  # where the weights came from
    rows: NDArray[np.int64]  # places of the examples that are attacked, [k]

    @property
    def activations(self) -> NDArray[np.float32]:
        """[k, D], each example's as one vector."""
        return to_rows(np.asarray(self.artifact.payload[ARRAYS[self.artifact.kind]], np.float32))[self.rows]

    @property
    def labels(self) -> NDArray[np.int64]:
        """[k] as sent; -1 where the client keeps them."""
        sent = self.artifact.payload.get("labels")
        return np.full(len(self.rows), -1) if sent is None else np.asarray(sent, np.int64)[self.rows]

    def thin(self, most: int) -> "Batch":
        """So many of its examples at most, evenly spread over it."""
        kept = np.unique(np.linspace(0, len(self.rows) - 1, most).round().astype(int))
        return replace(self, rows=self.rows[kept])


def list_batches(
    view: Sequence[Artifact], most: int, needs_layers: bool = True, kind: Kind = Kind.SMASHED
) -> list[Batch]:
    """Of each client so many of its newest batches, evenly spread, and all replayed ones.

    Those whose layers are known; without `needs_layers` all of them, and no layers are read.
    """
    seen = index(view)
    sent = defaultdict[tuple[int, int], list[Artifact]](list)
    replayed = []
    for a in seen.select(kind=kind):
        if a.sender.role != Role.CLIENT or a.sender.index is None or ARRAYS[kind] not in a.payload:
            continue
        if is_replay(a.origin):
            replayed.append(a)
        elif a.channel == Channel.UPLINK:
            sent[a.sender.index, a.round].append(a)
    newest = {client: max(r for k, r in sent if k == client) for client, _ in sent}
    found = []
    for client, round in sorted(newest.items()):
        own = sent[client, round]
        for i in np.unique(np.linspace(0, len(own) - 1, most).round().astype(int)).tolist():
            found.append(_read_batch(seen, own[i], i / max(1, len(own)), needs_layers))
    found += [_read_batch(seen, a, 0.0, needs_layers) for a in replayed]
    return [b for b in found if b is not None]


def _read_batch(view: Artifacts, sent: Artifact, place: float, needs_layers: bool) -> Batch | None:
    rows = np.arange(len(sent.payload[ARRAYS[sent.kind]]))
    if not needs_layers:
        return Batch(artifact=sent, weights={}, source=UNUSED, rows=rows)
    start, source = find_layers(view, sent)
    if start is None:
        return None
    back = view.find_first(kind=Kind.LOCAL_MODEL, round=sent.round, sender=sent.sender, origin="recorded")
    if place == 0 or back is None or source == RELEASED:
        return Batch(artifact=sent, weights=start.payload, source=source, rows=rows)
    end: Arrays = back.payload

    def interpolate(name: str, value: NDArray[Any]) -> NDArray[Any]:
        moved: NDArray[Any] = value + place * (end[name] - value)
        return moved.astype(value.dtype)

    weights = {k: interpolate(k, v) if k in end else v for k, v in start.payload.items()}
    return Batch(artifact=sent, weights=weights, source=BETWEEN, rows=rows)


def find_layers(view: Artifacts, sent: Artifact) -> tuple[Artifact | None, str]:
    """The message with the layers that a client's batches of a round began with, as near as the server knows."""
    readers = ("client", str(sent.sender))
    handed = view.newest(Kind.GLOBAL_MODEL, sent.round, readers)
    if handed is not None:
        return handed, HANDED
    models = view.select(kind=Kind.GLOBAL_MODEL)
    later = [a for a in models if a.round > sent.round]
    known = min(later, key=lambda a: a.round) if later else None
    return known, RELEASED


def group_by_weights(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Batches of the same layers together: an inversion is fitted once for each."""
    groups: dict[tuple[Any, ...], list[Batch]] = {}
    for b in batches:
        key = tuple((k, np.asarray(v).tobytes()) for k, v in sorted(b.weights.items()))
        groups.setdefault(key, []).append(b)
    return list(groups.values())


def why_unreadable(view: Sequence[Artifact], knowledge: Knowledge, needs_layers: bool = True) -> str:
    """Why no batch can be read, as a sentence; empty where one can."""
    seen = index(view)
    if not seen.select(kind=Kind.SMASHED):
        return "no client sent what its first layers make of its examples"
    if "cut" not in knowledge.training:
        return "after which layer the network is cut was not stated"
    if needs_layers and not list_batches(seen, 1):
        return "the first layers never reached the server, so it does not know what made the activations"
    return ""
