"""Class list: which classes a client owns, from any message that names them.

A table of outputs says which of its rows are filled (federated distillation), proxies, prototypes, condensed
images and features come with the classes they are of. Nothing is inferred: what is listed is what the client
owns, unless a protection left some out. A row of a table that is all zero was not filled, whatever the message
says of it.

The planted leak is the list of each client's true classes, in a message of the same form. The negative control
holds every claim against the classes of another client.

Claim: present bool [k, C], client [k], kind [k] as text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.assertions import OF_CLASSES, by_client, name_classes
from fedaudit.attacks.evaluation.groups import HELD, choose_remedy, count_each_kind
from fedaudit.attacks.evaluation.label_sets import set_evidence, wrong_client
from fedaudit.attacks.evidence import Assertion, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact, Party, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

LISTED = {  # the array that names classes; of MEAN_LOGIT_TABLE it says so class by class
    Kind.MEAN_LOGIT_TABLE: "present",
    Kind.PROXIES: "classes",
    Kind.LOCAL_PROTOTYPES: "classes",
    Kind.CONDENSED_LABELS: "labels",
    Kind.FEATURES: "labels",
    Kind.SMASHED: "labels",  # of one batch: a client names classes by all that it sends in a round
}


class ClassList(Attack):
    card = Card(
        title="Classes named in messages",
        source="the rows of tables, proxies, prototypes and condensed images, and labels, as sent",
        aim=Aim.ATTRIBUTE,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER),
        requires=(),
        also_reads=tuple(LISTED),
        learns="which classes a client owns",
        does_not_show="how many examples of each it owns, nor what the numbers beside the classes reveal of them",
        control="",  # planted in measure()
        remedy="send a row for every class, noise in those that a client does not own; or aggregate securely",
        effort=Effort(seconds=0.1, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found = _lists(view, knowledge.classes)
        return {
            "present": np.stack([p for _, p in found]),
            "client": np.array([a.sender.index for a, _ in found]),
            "kind": np.array([a.kind.value for a, _ in found]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        return by_client(claim["client"], claim["present"], lambda p: name_classes(p, classes), OF_CLASSES)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        kinds = list(dict.fromkeys(claim["kind"].tolist()))
        found: list[Evidence] = []
        for kind in kinds:
            rows = claim["kind"] == kind
            said, here = claim["present"][rows], {"kind": str(kind)}
            true = np.stack([truth.label_counts(int(k)) > 0 for k in claim["client"][rows]])
            prior = np.bincount(truth.auxiliary.y, minlength=true.shape[1]).astype(np.float64)
            found += set_evidence(said, true, prior, rng, looks=len(kinds), condition=here)
            planted = np.stack([_present(Kind(kind), _message(Kind(kind), t), len(t)) for t in true])
            found += set_evidence(
                planted,
                true,
                prior,
                rng,
                looks=len(kinds),
                condition=here,
                control="positive",
                note="messages that name each client's classes",
            )[:1]
            found += wrong_client(said, true, here)
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of each kind of message: whoever stands in a small group that it names, and whose classes are named."""
        return count_each_kind(claim, claim["present"], HELD, truth)

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        return choose_remedy(claim["kind"].tolist(), self.card.remedy)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return "" if _lists(view, knowledge.classes) else "no client sends anything that names classes"


def _lists(view: Sequence[Artifact], classes: int) -> list[tuple[Artifact, NDArray[np.bool_]]]:
    """Messages that name classes, and which."""
    named: dict[tuple[Kind, Party, int], tuple[Artifact, NDArray[np.bool_]]] = {}
    for a in view:
        if (
            a.kind in LISTED
            and a.sender.role == Role.CLIENT
            and a.sender.index is not None
            and a.origin == "recorded"
            and LISTED[a.kind] in a.payload
        ):
            key = (a.kind, a.sender, a.round)
            first, before = named.get(key, (a, np.zeros(classes, bool)))
            named[key] = first, before | _present(a.kind, a.payload, classes)
    return list(named.values())


def _present(kind: Kind, payload: Mapping[str, NDArray[Any]], classes: int) -> NDArray[np.bool_]:
    """[C] what one message names."""
    listed = np.asarray(payload[LISTED[kind]])
    if kind == Kind.MEAN_LOGIT_TABLE:
        return np.asarray(listed.astype(bool) & np.asarray(payload["table"]).any(axis=1))
    return np.isin(np.arange(classes), listed)


def _message(kind: Kind, own: NDArray[np.bool_]) -> Mapping[str, NDArray[Any]]:
    """A message of this kind from a client of these classes."""
    if kind == Kind.MEAN_LOGIT_TABLE:
        return {"present": own, "table": np.outer(own, np.full(len(own), 1 / len(own)))}
    return {LISTED[kind]: np.flatnonzero(own)}
