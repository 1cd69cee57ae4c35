"""Numbers that are not those of their sender: what is called a count of examples may carry anything.

A kind whose row says `counted` tells how many examples its sender holds, in all or of a class. The auditor knows
how many it does hold. A number that differs is a label, a part of an image or a claim to more weight; no attack
reads such codes, and none is needed to see that the number is not what it is called. Left out are kinds that a
protection changes, and compromised clients, whose lies are the auditor's.

Where a method's card says that its clients count what they made or repeated, that is not believed either: their
code trains once more, and the examples it trains on are counted (audit/controls/counted.py). Where its answer
then is another than was recorded, or it cannot be played, the number is *declared*, and the report says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.counted import counted
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position, ThreatModel

PLAYED = 10  # clients that train once more, at most
DECLARED = (
    "Declared, not checked: how many examples {} of {} clients send as theirs. The card of {} says that clients "
    "count what they made or repeated, and their code could not be played so that it says the same again."
)


@dataclass(frozen=True, kw_only=True)
class Untrue(Subject):
    """One kind of count that some clients' messages have wrong."""

    kind: Kind
    clients: int  # with a number that is not theirs
    compared: int  # clients whose numbers were compared
    example: str  # the first of them, in words

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="untrue_counts", value=self.clients)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        return {
            "id": f"untrue-{self.kind}",
            "title": "What clients send as a number of examples is another number",
            "source": "disclosure",
            "summary": f"{self.clients} of {self.compared} clients sent something else as {self.kind}, "
            f"which is {self.kind.words}: {self.example}.",
            "threat": ThreatModel(position=Position.SERVER),
            "artifacts": [str(self.kind)],
            "does_not_show": "what the numbers stand for: a label, a part of an image, or a claim to more weight",
            "remedy": "look at what the client's code writes there; let the server bound what it believes",
        }


class Checked(NamedTuple):
    """What is wrong, and what could not be checked, in sentences."""

    wrong: list[Untrue]
    declared: list[str]


def checked(case: Case) -> Checked:
    """One subject for every kind of count with a message that is wrong."""
    if case.artifacts is None or not isinstance(case, SimulatedCase):
        return Checked([], [])
    compromised, changed = (
        case.compromise.clients,
        [getattr(p.config, "kinds", p.kinds) for p in case.protections],
    )
    kinds = {k for k in Kind if k.counted}.difference(*changed)
    made = Kind.NUM_EXAMPLES if case.card.counts_made and Kind.NUM_EXAMPLES in kinds else None
    wrong: dict[Kind, dict[int, str]] = {}
    compared: dict[Kind, set[int]] = {}
    held: dict[int, NDArray[np.int64]] = {}  # examples of each class
    theirs: dict[int, Artifact] = {}  # the latest number of each client that counts what it made
    for a in messages(case.artifacts, kinds, "all"):
        k = a.sender.index
        if a.sender.role != Role.CLIENT or k is None or k not in case.parts or k in compromised:
            continue
        if a.channel not in (Channel.UPLINK, Channel.RELAY) or not len(case.parts[k]):
            continue
        compared.setdefault(a.kind, set()).add(k)
        if a.kind == made:
            theirs[k] = a
            continue
        if k not in held:
            held[k] = np.bincount(case.data.train.y[case.parts[k]], minlength=len(case.data.classes))
        if words := differs(a, held[k]):
            wrong.setdefault(a.kind, {}).setdefault(k, f"client {k} sends {words} in round {a.round}")
    unknown = _played(case, theirs, wrong) if made else set[int]()
    if made and theirs:
        compared[made] = set(theirs) - unknown
    found = [
        Untrue(kind=kind, clients=len(some), compared=len(compared[kind]), example=next(iter(some.values())))
        for kind, some in sorted(wrong.items())
    ]
    return Checked(found, [DECLARED.format(len(unknown), len(theirs), case.card.title)] if unknown else [])


def _played(case: SimulatedCase, theirs: Mapping[int, Artifact], wrong: dict[Kind, dict[int, str]]) -> set[int]:
    """Clients whose numbers are declared, as playing them does not tell; `wrong` gains those that are untrue."""
    assert case.artifacts is not None
    recorded = index(messages(case.artifacts, case.card.downlink, "all") if theirs else [])
    unknown = set(theirs)
    for k, a in sorted(theirs.items())[:PLAYED]:
        said, again = int(np.asarray(a.payload["count"])), counted(case, recorded, a)
        if again is None or again.said != said:
            continue
        unknown.discard(k)
        if said <= 0 or again.rows != said:
            words = f"client {k} sends {said:,} in round {a.round} and trains on {again.rows:,} examples"
            wrong.setdefault(Kind.NUM_EXAMPLES, {})[k] = words
    return unknown


def differs(sent: Artifact, own: NDArray[np.int64]) -> str:
    """What a message says and what it would have to say; empty where that is the same. `own` [C]: counts held.

    A client may send anything: no number, numbers of classes that there are not, not as many as classes.
    """
    said = np.asarray(sent.payload.get(str(sent.kind.counted), ()), np.float64)
    if said.ndim == 0:
        return "" if said == own.sum() else f"{float(said):,.0f} for {own.sum():,} examples"
    classes = np.asarray(sent.payload.get("classes", np.arange(said.size)), np.float64)
    if said.shape != classes.shape or said.ndim > 1 or not np.isin(classes, np.arange(len(own))).all():
        return "counts that are not one a class"
    for c, n in zip(classes.astype(int).tolist(), said.tolist(), strict=True):
        if n != own[c]:
            return f"{n:,.0f} for {own[c]:,} examples of class {c}"
    return ""
