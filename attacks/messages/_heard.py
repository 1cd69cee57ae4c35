"""What single clients, or all clients of a sum, sent in a round, with what they can be played from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Player, Sent, Visit
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.sources import compute_change, global_model, read_examples
from fedaudit.attacks.evaluation.sums import number_of
from fedaudit.attacks.evaluation.targets import Arrays, Target, targets
from fedaudit.fl.artifact import Artifact, Channel, Party, Role
from fedaudit.fl.kinds import UPDATES, Kind

UPLOADS = (*UPDATES, Kind.NORMALIZED_DELTA)
ASSUMED = 20  # examples behind a message, where nothing tells
MOST_COPIES = 20  # of a person, where a client is played that holds nobody else


@dataclass(frozen=True, eq=False)
class Heard:
    """A message. Its payloads are opened when they are read."""

    party: Party
    round: int
    target: Target | None  # what it says of the model, where it does
    rest: Mapping[Kind, Mapping[str, NDArray[Any]]]  # all else
    artifact: str
    weights: Arrays  # of the model that all else was made with; empty: not known
    examples: int  # 0: not told
    classes: Mapping[int, int] = field(default_factory=dict)  # of them of each class, where that is told

    def of_class(self, label: int) -> int:
        """Examples of a class; 0: not told."""
        return self.classes.get(label, 0)

    @property
    def sender(self) -> int:
        return number_of(self.party)

    @property
    def visit(self) -> Visit:
        """The client as it stood when it made its message; of a sum any client."""
        return Visit(sender=self._one, round=self.round, weights=self.weights)

    @property
    def beginning(self) -> Visit:
        """The client as it stood when it began to train."""
        return Visit(sender=self._one, round=self.round, weights=self.target.start if self.target else {})

    @property
    def copies(self) -> int:
        """How often a client that holds one person alone holds that person.

        As often as it holds people, up to MOST_COPIES: code may set some aside, or read a few by their places.
        """
        return min(self.examples or ASSUMED, MOST_COPIES)

    @property
    def _one(self) -> Party:
        return Party.client(max(self.sender, 0))

    def plant(
        self, player: Player, holdings: Sequence[Examples], seed: int, training: Mapping[str, float]
    ) -> "list[Heard | None]":
        """The same of clients that hold such images; None of whose message is withheld."""
        played = player.play(self.beginning if self.target else self.visit, holdings, seed)
        return [self._replace(sent, own, training) for sent, own in zip(played, holdings, strict=True)]

    def _replace(self, sent: Sent, images: Examples, training: Mapping[str, float]) -> "Heard | None":
        rest = {k: arrays for k, arrays in sent.items() if k in self.rest}
        target = None
        if self.target is not None:
            change = read_change(sent, self.target, training)
            if change is None:
                return None
            start = self.target.start
            moved = {k: np.asarray(start[k] + change.get(k, 0.0), start[k].dtype) for k in start}
            target = replace(self.target, weights={**self.target.weights, **moved}, clients=1)
        elif not rest:
            return None
        own = target.weights if target is not None else self.weights
        counts = {int(c): int((images.y == c).sum()) for c in np.unique(images.y)} if self.classes else {}
        return replace(
            self, party=self._one, target=target, rest=rest, weights=own, examples=len(images), classes=counts
        )


def gather(
    view: Sequence[Artifact], reads: Sequence[Kind], rng: np.random.Generator, training: Mapping[str, float]
) -> list[Heard]:
    """All that clients sent: one message a client and round, and one a sum; by round and client."""
    view = index(view)
    updates = {
        t.artifact: t for t in targets(view, rng, len(view), training) if t.start and t.origin == "recorded"
    }
    messages: dict[tuple[int, int, str], list[Artifact]] = {}
    for a in view:
        is_upload = a.channel == Channel.UPLINK and a.sender.role == Role.CLIENT and a.origin == "recorded"
        if is_upload and (a.kind in reads or a.kind.open):
            sum_of = a.id.rpartition("/")[0] if a.sender.index is None else ""
            messages.setdefault((a.round, number_of(a.sender), sum_of), []).append(a)
    heard = []
    for (round, _, _), parts in sorted(messages.items()):
        target = next((updates[a.id] for a in parts if a.id in updates), None)
        start = global_model(view, round, parts[0])
        weights = target.weights if target else start.payload if start is not None else {}
        heard.append(
            Heard(
                party=parts[0].sender,
                round=round,
                target=target,
                rest={a.kind: a.payload for a in parts if a.kind not in UPLOADS},
                artifact=parts[0].id,
                weights=weights,
                examples=read_examples(parts[0], view) or 0,
                classes=_read_counts(parts),
            )
        )
    return heard


def _read_counts(parts: Sequence[Artifact]) -> dict[int, int]:
    """How many examples of each class stand behind a message, where something in it says so."""
    for a in parts:
        if a.kind in (Kind.PROTO_COUNTS, Kind.LABEL_COUNTS):
            counts = np.ravel(a.payload["counts"])
            labels = np.ravel(a.payload["classes"]) if "classes" in a.payload else np.arange(len(counts))
            return {
                int(c): max(0, round(float(n))) for c, n in zip(labels, counts, strict=False) if np.isfinite(n)
            }
    return {}


def read_change(sent: Sent, target: Target, training: Mapping[str, float]) -> Arrays | None:
    """What a played client changed in the model that it began with; None where its message is withheld."""
    kind = next((k for k in UPLOADS if k in sent), None)
    if kind is None:
        return None
    norm = sent.get(Kind.NUM_STEPS, {}).get("norm")
    upload = Artifact(
        id="",
        kind=kind,
        channel=Channel.UPLINK,
        round=target.round,
        sender=Party.client(max(target.sender, 0)),
        seen_by=(),
        payload=sent[kind],
        origin="replayed",
        note={} if norm is None else {"norm": float(norm)},
    )
    return compute_change(upload, target.start, [], training)
