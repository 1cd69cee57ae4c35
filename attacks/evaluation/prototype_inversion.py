"""The attacks that turn prototypes into images: they differ in `invert`, and share all the rest.

Claim: images float32 [k, C, H, W], label, n (-1 unknown), sender [k], and as text artifact, origin
round and extractor (where the weights came from) [k]; reading: how prototypes were read; senders [s]: all
clients that sent prototypes, read or not.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Claim, Extractor, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import count_claimed
from fedaudit.attacks.evaluation.image_evidence import judge_images
from fedaudit.attacks.evaluation.image_trials import ImageTrials, PrototypeBucket
from fedaudit.attacks.evaluation.prototype_plays import ReadSource, describe, read
from fedaudit.attacks.evaluation.sources import Source, columns, global_model, prototypes, unreadable
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]

FEW = 20  # people behind a prototype, up to which a minimum count is a remedy
OFTEN = 0.2  # of larger groups, in which somebody is named beyond luck: then it is none
REQUIRES = (Kind.LOCAL_PROTOTYPES,)
ALSO_READS = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS)


@dataclass(frozen=True, kw_only=True)
class InversionTask:
    """Prototypes of one model, to be inverted with it."""

    extractor: Extractor
    features: NDArray[np.float32]  # [k, D]
    labels: NDArray[np.int64]  # [k]


class Standard:
    """Features to mean 0 and deviation 1 over the auxiliary images, [k, D] -> [k, D].

    The 1e-3 keeps units of a ReLU that are almost always 0 from being blown up.
    """

    def __init__(self, features: Floats) -> None:
        self.mean = features.mean(axis=0, dtype=np.float64)
        self.std = features.std(axis=0, dtype=np.float64) + 1e-3

    def __call__(self, features: Floats) -> Floats:
        return np.asarray((features - self.mean) / self.std)


class PrototypeInversion(Attack):
    """Base class. A subclass sets `card` and writes `invert`."""

    @settings
    class Config:
        max_clients: AtLeastOne = Field(
            default=20, description="models to attack, at most; those with replays and the smallest classes first"
        )
        gallery: int = Field(default=100, ge=3, description="images among which a member is looked for")
        show_sizes: tuple[AtLeastOne, ...] = Field(
            default=(1, 5, 20),
            description="numbers of samples behind a replayed prototype for which figures are shown",
        )
        show: AtLeastOne = Field(default=8, description="images in a row of the report's figures")

    @abstractmethod
    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        """Images [k, C, H, W] in [0, 1] for each task; `first` is the model all tasks came from."""

    def choose(self, sources: Sequence[Source]) -> list[Source]:
        """Which prototypes to attack, of all in the order of their worth."""
        return list(sources[: self.config.max_clients])

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sources = self.choose(prototypes(view))
        if not sources:
            raise UserError(
                "no model was recorded that could have made the prototypes",
                hint="record local_model or model_delta with global_model in the same rounds",
            )
        sent, reading = read(sources, knowledge)
        tasks = [_task(r) for r in sent]
        broadcast = global_model(view, max(s.prototypes[0].round for s in sources))
        first = tasks[0].extractor
        if broadcast is not None and not reading.played:
            first = knowledge.granted_architecture(broadcast.payload)
        images = self.invert(tasks, first, knowledge, rng)
        every = [p for s in sources for p in s.prototypes]
        return {
            "images": np.clip(np.concatenate(images), 0, 1).astype(np.float32),
            **columns(every),
            **list_senders(view, Kind.LOCAL_PROTOTYPES),
            "extractor": np.array([s.weights.source for s in sources for _ in s.prototypes]),
            "reading": np.array(str(reading)),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        result, reading = judge_images(self._trials(claim, truth, rng).buckets, rng), describe(claim)
        return [replace(e, note="; ".join(filter(None, (e.note, reading)))) for e in result]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_claimed(claim, truth, self._trials(claim, truth, rng).every)

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """A minimum count helps, unless people are named in large groups as well, beyond luck."""
        large = [t for t in self._trials(claim, truth).every if t.origin == "recorded" and t.n > FEW]
        named = [t.named for t in large]
        if not named or np.mean([n.hits[0] - n.luck[0] for n in named]) < OFTEN:
            return self.card.remedy
        return (
            f"clip and noise prototypes; a minimum count of {FEW} does not help, for people are named in larger "
            "groups as well"
        )

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        found = self._trials(claim, truth).buckets
        recorded = [b for b in found if b.origin == "recorded"]
        wanted = recorded[:1] + recorded[1:][-1:]  # fewest and most samples
        wanted += [b for b in found if b.origin == "replayed" and b.samples in self.config.show_sizes]
        return [self._gallery(b, claim) for b in sorted(wanted, key=lambda b: b.samples)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return unreadable(view, knowledge.auxiliary, "auxiliary_data" in self.card.threat.knows)

    @cached_property
    def _trials(self) -> BuiltOnce[ImageTrials]:
        gallery = self.config.gallery
        return BuiltOnce(lambda claim, truth, rng: ImageTrials(claim, truth, gallery, rng))

    def _gallery(self, bucket: PrototypeBucket, claim: Claim) -> ImageGallery:
        shown = np.unique(np.linspace(0, len(bucket) - 1, self.config.show).round().astype(int))
        wrong = np.where(bucket.same >= 0, bucket.same, bucket.other)[shown]
        rows = [bucket.trials[i].row for i in shown]
        means = bucket.average_members()
        n = [len(bucket.trials[i].members) for i in shown]
        behind = f"n = {min(n)}" if min(n) == max(n) else f"n = {min(n)} to {max(n)}"
        images = {
            "original (a member)": bucket.targets[shown],
            "mean of the members": means[shown],
            "reconstruction": bucket.claimed[shown],
            "class mean": bucket.blind["class mean of auxiliary data"][1][shown],
            "wrong prototype": bucket.claimed[wrong],
        }
        if min(n) == max(n) == 1:
            del images["mean of the members"]  # the same image again
        return ImageGallery(
            title=f"{self.card.title}: {behind}, {bucket.origin}",
            caption="Leakage is what the reconstruction shares with the original and neither the class "
            "mean nor the wrong prototype does.",
            rows=images,
            columns=tuple(
                f"client {claim['sender'][r]}, class {claim['label'][r]}, n = {k}"
                for r, k in zip(rows, n, strict=True)
            ),
        )


def _task(r: ReadSource) -> InversionTask:
    return InversionTask(
        extractor=r.extractor, features=r.source.features, labels=np.array([p.label for p in r.source.prototypes])
    )
