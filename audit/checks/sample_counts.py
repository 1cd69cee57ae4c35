"""Sample counts: numbers that are not their sender's, since what is called a count may carry anything.

A kind whose row says `counted` tells how many examples its sender holds, in all or of a class. The auditor knows
how many it does hold. A number that differs is a label, a part of an image or a claim to more weight; no attack
reads such codes, and none is needed to see that the number is not what it is called. Left out are kinds that a
protection changes, and compromised clients, whose lies are the auditor's.

Where a method's card says that its clients count what they made or repeated, that is not believed either: their
code trains once more, and the examples it trains on are counted (audit/checks/_training_rows.py). Where its
answer then is another than was recorded, or it cannot be played, the number is *declared*, as the report says.

Clients that all send one and the same number, in every message, say nothing of anybody's data by it, whatever
they hold. That is declared too, and no finding.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.case.case import KnownFederation, ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.checks._training_rows import count_training_rows
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.reports.result import Finding, Severity

LEAST_ALIKE = 3  # clients that send one number, from which on it is nobody's own
ALIKE = (
    "All {} clients send the same {}, whatever they hold: it says nothing of their data, and the server weighs "
    "everybody alike."
)
MOST_PLAYED = 10  # clients that train once more, at most
DECLARED = (
    "Declared, not checked: how many examples {} of {} clients send as theirs. The card of {} says that clients "
    "count what they made or repeated, and their code could not be played so that it says the same again."
)


class SampleCounts(Check):
    """One result for every kind of count of which a message is wrong."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if federation.artifacts is None or not federation.simulated:
            return
        comparison = CountComparison(federation)
        for sent in messages(federation.artifacts, comparison.kinds, "all"):
            comparison.compare(sent)
        received = messages(federation.artifacts, federation.card.downlink, "all") if comparison.made else []
        unplayed = comparison.play_makers(lab, index(received))
        alike = {kind for kind in comparison.wrong if comparison.is_alike(kind)}
        for kind, wrong in sorted(comparison.wrong.items()):
            if kind not in alike:
                yield describe(kind, wrong, len(comparison.compared[kind]))
        if unplayed:
            yield DECLARED.format(len(unplayed), len(comparison.made), federation.card.title)
        for kind in sorted(alike):
            yield ALIKE.format(len(comparison.compared[kind]), kind.words)


class CountComparison:
    """Counts in messages held against what their senders hold, or train on."""

    def __init__(self, federation: KnownFederation) -> None:
        changed = [getattr(p.config, "kinds", p.kinds) for p in federation.protections]
        self.kinds = {k for k in Kind if k.counted}.difference(*changed)
        self.wrong: dict[Kind, dict[int, str]] = {}  # kind -> client -> what it stated, in words
        self.compared: dict[Kind, set[int]] = {}  # kind -> clients
        self.made: dict[int, Artifact] = {}  # the latest number of each client that counts what it made
        self._federation, self._parts = federation, federation.examples.parts
        self._stated: dict[Kind, set[tuple[tuple[str, bytes], ...]]] = {}  # what messages of a kind hold
        self._held: dict[int, NDArray[np.int64]] = {}  # examples of each class

    def compare(self, sent: Artifact) -> None:
        """One message; compromised clients are left out, whose lies are the auditor's."""
        client = sent.sender.index
        if client is None or not sent.from_client:
            return
        if client in self._federation.compromise.clients or not len(self._parts.get(client, ())):
            return
        if sent.kind == Kind.NUM_EXAMPLES and self._federation.card.counts_made:
            self.made[client] = sent
            return
        self.compared.setdefault(sent.kind, set()).add(client)
        self._stated.setdefault(sent.kind, set()).add(
            tuple((name, np.asarray(x).tobytes()) for name, x in sorted(sent.payload.items()))
        )
        if words := explain_difference(sent, self._count_held(client)):
            text = f"client {client} sends {words} in round {sent.round}"
            self.wrong.setdefault(sent.kind, {}).setdefault(client, text)

    def is_alike(self, kind: Kind) -> bool:
        """Whether every message of three clients or more states the same."""
        return len(self._stated.get(kind, ())) == 1 and len(self.compared[kind]) >= LEAST_ALIKE

    def play_makers(self, lab: Lab | None, recorded: Sequence[Artifact]) -> set[int]:
        """Trains clients that count what they made once more; gives those of whom that shows nothing."""
        unplayed = set(self.made)
        for client, sent in sorted(self.made.items())[:MOST_PLAYED]:
            stated = int(np.asarray(sent.payload["count"]))
            replayed = count_training_rows(lab, recorded, sent)
            if replayed is None or replayed.stated != stated:
                continue
            unplayed.discard(client)
            if stated <= 0 or replayed.rows != stated:
                words = f"{stated:,} in round {sent.round} and trains on {replayed.rows:,} examples"
                self.wrong.setdefault(Kind.NUM_EXAMPLES, {})[client] = f"client {client} sends {words}"
        if self.made:
            self.compared[Kind.NUM_EXAMPLES] = set(self.made) - unplayed
        return unplayed

    def _count_held(self, client: int) -> NDArray[np.int64]:
        if client not in self._held:
            data = self._federation.data
            groups = data.group(data.train)[self._parts[client]]
            self._held[client] = np.bincount(groups, minlength=max(1, len(data.groups)))
        return self._held[client]


def describe(kind: Kind, wrong: Mapping[int, str], compared: int) -> Finding:
    """The result of one kind of count; `wrong`: client -> what it stated, in words."""
    return Finding(
        id=f"untrue-{kind}",
        title="What clients send as a number of examples is another number",
        summary=f"{len(wrong)} of {compared} clients sent something else as {kind}, which is {kind.words}: "
        f"{next(iter(wrong.values()))}.",
        severity=Severity.MEDIUM,
        reason="It may carry a label or part of an image that no attack reads; the server weighs clients by it.",
        artifacts=[str(kind)],
        does_not_show="what the numbers stand for: a label, a part of an image, or a claim to more weight",
        remedy="look at what the client's code writes there; let the server bound what it believes",
    )


def explain_difference(sent: Artifact, own: NDArray[np.int64]) -> str:
    """What a message states and what it would have to state; empty where that is the same. `own` [C]: held.

    A client may send anything: no number, numbers of classes that there are not, not as many as classes, or more
    beside its numbers.
    """
    for name, array in sent.payload.items():
        if name not in sent.kind.arrays or np.asarray(array).dtype.kind not in "iuf":
            return f"{name!r:.40} of {np.size(array):,} numbers of type {np.asarray(array).dtype}"
    stated = np.asarray(sent.payload.get(str(sent.kind.counted), ()), np.float64)
    if stated.ndim == 0:
        return "" if stated == own.sum() else f"{float(stated):,.0f} for {own.sum():,} examples"
    classes = np.asarray(sent.payload.get("classes", np.arange(stated.size)), np.float64)
    is_each_once = stated.shape == classes.shape == np.unique(classes).shape
    if not is_each_once or not np.isin(classes, np.arange(len(own))).all():
        return "counts that are not one a class"
    for c, n in zip(classes.astype(int).tolist(), stated.tolist(), strict=True):
        if n != own[c]:
            return f"{n:,.0f} for {own[c]:,} examples of class {c}"
    return ""
