"""The attacks that query a model whether an image was trained on: they differ in `scorer`.

Claim: a rule, since any image can be queried. scorer [1], an object; artifact, origin, kind, model and
sender (-1: the server) of every model queried [k]; senders [s]: all clients that sent one; classes, width and
seed []; task [1], an object.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Floats, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.membership import curve, judge_buckets
from fedaudit.attacks.evaluation.model_trials import ModelTrials, name_bucket
from fedaudit.attacks.evaluation.scores import Mask
from fedaudit.attacks.evaluation.targets import Target, targets
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

CARD = Card(
    title="Membership from models",
    source="",
    aim=Aim.MEMBERSHIP,
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
    requires=(Kind.GLOBAL_MODEL,),
    also_reads=(*UPDATES, Kind.NORMALIZED_DELTA, Kind.NUM_STEPS, Kind.AGGREGATE),
    aids=(Kind.NUM_STEPS,),
    control="memorised",
    rounds="all",
    needs=("answers",),
    learns="whether a given example was trained on: by anybody, from the global model that every "
    "client and user gets; by one client, from its upload",
    does_not_show="membership to a stronger adversary (other rounds, better shadow models, examples put "
    "in on purpose); an average near chance hides the few examples that are exposed",
    remedy="train with dp_sgd for a stated epsilon, with fewer epochs and more regularisation; "
    "aggregate uploads securely, so that no single one is seen",
    effort=Effort(seconds=1.2, grows=("network", "clients")),
)


class Scorer(Protocol):
    """How much each model looks as if it had been trained on each image."""

    def __call__(self, candidates: Examples, asked: Mask, /) -> Floats:
        """[models, N], higher for members, where `asked` [models, N] says so.

        Rows may have scales of their own, and hold anything where nothing is asked.
        """


class ModelMembership(Attack):
    """Base class. A subclass sets `card` (CARD with its own title and source) and writes `scorer`."""

    @settings
    class Config:
        max_clients: AtLeastOne = Field(default=1000, description="uploads to attack, at most")
        members: AtLeastOne = Field(default=500, description="training examples scored for one model, at most")
        others: AtLeastOne = Field(default=2000, description="non-members scored, at most")
        people: AtLeastOne = Field(
            default=5000, description="people of all clients who are tested, about, drawn at random"
        )

    @abstractmethod
    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        """The rule for these models."""

    def targets(self, view: Sequence[Artifact], known: Knowledge, rng: np.random.Generator) -> list[Target]:
        """The models this attack is aimed at."""
        return targets(view, rng, self.config.max_clients, known.training)

    def applies_to(self, target: Target) -> bool:
        """Whether this attack can be aimed at such a model."""
        return True

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        queried = [t for t in self.targets(view, knowledge, rng) if self.applies_to(t)]
        rule, task = np.empty(1, object), np.empty(1, object)
        task[0] = knowledge.task
        rule[0] = self.scorer(queried, knowledge, rng)
        return {
            "scorer": rule,
            "artifact": np.array([t.artifact for t in queried]),
            "origin": np.array([t.origin for t in queried]),
            "kind": np.array([t.kind.value for t in queried]),
            "model": np.array([t.model for t in queried]),
            "sender": np.array([t.sender for t in queried]),
            "n": np.array([t.n for t in queried]),
            "round": np.array([t.round for t in queried]),
            **list_senders(view, *self.card.targets),
            "classes": np.array(knowledge.classes),
            "task": task,
            "width": np.array(knowledge.width or knowledge.classes),
            "seed": np.array(rng.integers(2**62)),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        every = self._trials(claim, truth).buckets
        real = [b.silent for b in every if b.control == "none"]
        return judge_buckets(every, len(every), real)

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return self._trials(claim, truth).count_people()

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        return [curve(name_bucket(b), b.scores) for b in self._trials(claim, truth).buckets]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(self.applies_to(t) for t in self.targets(view, knowledge, np.random.default_rng(0))):
            return "no upload was recorded together with the model it started from"
        return ""

    @cached_property
    def _trials(self) -> BuiltOnce[ModelTrials]:
        limits = self.config.members, self.config.others, self.config.people
        # of the claim's own seed: all adversaries and rounds are asked about the same people
        return BuiltOnce(
            lambda claim, truth, _: ModelTrials(claim, truth, limits, np.random.default_rng(int(claim["seed"])))
        )
