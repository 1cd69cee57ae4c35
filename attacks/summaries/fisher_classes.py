"""Classes from Fisher diagonals: which classes a client owns, and how much of each, from its curvature.

Shoham et al., arXiv:1910.07796, send diagonals of the Fisher information besides models, and state no further
privacy risk. The diagonal at the head's bias is a mixture of what each class makes of it, and so shows how much
of each class there is (attacks/summaries/_fisher.py has the equations). Two rules,

    unmixing     non-negative least squares of the mixture by auxiliary examples of each class
    closed form  all outputs taken for equally likely, which holds before training; needs no data and no model

A class is claimed to be there from `least` of the unmixed share on. Blind adversaries are told how many classes a
client has, or guess equal shares. The planted leak is the diagonal of held-out images of two classes at each
client's own model; the negative control holds claims against another client. Diagonals of labels that the model
draws (`labels: model` of FedCurv) tell of outputs and of no labels.

Claim: shares float64 [2, k, C] by rule, present bool [k, C], client [k], artifact [k] as text; models [k],
objects: from images to their share of every class by unmixing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Extractor, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.assertions import OF_CLASSES, by_client, name_classes
from fedaudit.attacks.evaluation.counting import count_labels
from fedaudit.attacks.evaluation.groups import HELD, count_facts
from fedaudit.attacks.evaluation.label_sets import set_evidence, share_evidence, wrong_client
from fedaudit.attacks.evaluation.last_layer import head_names
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY, sent_with
from fedaudit.attacks.evaluation.sums import number_of
from fedaudit.attacks.evidence import Assertion, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.summaries._fisher import Values, mean_by_class, solve_uniform, square_errors, unmix
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

RULES = ("unmixing", "closed form")
PLANTED = 100  # images of each of two classes, for the planted leak, at most


class FisherClasses(Attack):
    card = Card(
        title="Classes from Fisher diagonals",
        source="the head's bias in what FedCurv sends (arXiv:1910.07796), unmixed by auxiliary examples",
        aim=Aim.ATTRIBUTE,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.FISHER,),
        also_reads=(Kind.LOCAL_MODEL, Kind.AGGREGATE),
        aids=(Kind.LOCAL_MODEL,),
        learns="which classes a client owns, and how much of each",
        does_not_show="which examples those are; nor classes where the labels were drawn by the model",
        control="",  # planted in measure()
        remedy="take the labels that the model draws, aggregate Fisher diagonals securely, or noise them with a "
        "stated epsilon",
        effort=Effort(seconds=0.3, grows=("clients",)),
    )

    @settings
    class Config:
        least: Share = Field(
            default=0.01, description="unmixed share of a class from which on it is claimed to be there"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _readable(view, knowledge)
        models = np.empty(len(sent), object)
        models[:] = [_Unmixing(s, knowledge) for s in sent]
        unmixed = np.stack([m.share(s.fisher) for m, s in zip(models, sent, strict=True)])
        return {
            "shares": np.stack([unmixed, np.stack([solve_uniform(s.fisher) for s in sent])]),
            "present": unmixed >= self.config.least,
            "client": np.array([number_of(s.artifact.sender) for s in sent]),
            "artifact": np.array([s.artifact.id for s in sent]),
            "least": np.array(self.config.least),
            "models": models,
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        return by_client(claim["client"], claim["present"], lambda p: name_classes(p, classes), OF_CLASSES)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        classes = claim["present"].shape[1]
        counts = count_labels(truth, claim["client"].tolist(), claim["artifact"].tolist(), classes)
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)
        found = set_evidence(claim["present"], counts > 0, prior, rng)
        planted, owned = self._plant(claim, truth.reference, rng)
        note = "held-out images of two classes at each client's model"
        found += set_evidence(planted, owned, prior, rng, control="positive", note=note)[:1]
        found += wrong_client(claim["present"], counts > 0)
        for rule, shares in zip(RULES, claim["shares"], strict=True):
            if np.isfinite(shares).all():
                found += share_evidence(shares, counts, prior, rng, condition={"rule": rule}, looks=len(RULES))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_facts(claim["client"], claim["present"], HELD, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        if not _readable(view, knowledge):
            return "no client sends a Fisher diagonal of the head's bias together with the model it was taken at"
        return ""

    def _plant(
        self, claim: Claim, reference: Examples, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """What is said of diagonals of two classes [k, C], and which two they are."""
        classes = claim["present"].shape[1]
        held = np.unique(reference.y)
        owned = np.zeros((len(claim["client"]), classes), bool)
        said = np.zeros_like(owned)
        for row, model in enumerate(claim["models"]):
            some = rng.permutation(held)[:2]
            owned[row, some] = True
            own = np.concatenate([np.flatnonzero(reference.y == c)[:PLANTED] for c in some])
            said[row] = model.share(model.diagonal(reference.only(own))) >= claim["least"]
        return said, owned


@dataclass(frozen=True, eq=False)
class _Sent:
    """One client's diagonal, and the model that it was taken at."""

    artifact: Artifact
    fisher: Values  # [C] of the head's bias
    weights: Mapping[str, NDArray[Any]]


class _Unmixing:
    """From diagonals at one client's model to shares of classes."""

    def __init__(self, sent: _Sent, knowledge: Knowledge) -> None:
        self._model: Extractor = knowledge.granted_architecture(sent.weights)
        self._means = mean_by_class(self._model, knowledge.granted_auxiliary, knowledge.classes)

    def share(self, fisher: Values) -> Values:
        return unmix(fisher, self._means)

    def diagonal(self, images: Examples) -> Values:
        """[C] of the head's bias, of a client that owns these images."""
        return np.asarray(square_errors(self._model, images).mean(axis=0))


def _readable(view: Sequence[Artifact], knowledge: Knowledge) -> list[_Sent]:
    """Diagonals of clients at the head's bias, with the models that came with them."""
    view, found = index(view), []
    for a in view.select(kind=Kind.FISHER, origin="recorded"):
        model = sent_with(a, Kind.LOCAL_MODEL, view)
        if a.sender.role != Role.CLIENT or model is None or knowledge.architecture is None:
            continue
        bias = head_names(model.payload, knowledge)[1]
        fisher = np.asarray(a.payload.get(f"u/{bias}", np.zeros(0)), np.float64)
        if len(fisher) == knowledge.classes and np.isfinite(fisher).all():
            found.append(_Sent(a, fisher, model.payload))
    return found
