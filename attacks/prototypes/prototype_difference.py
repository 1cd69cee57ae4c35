"""Prototype differencing: the features of one image, from the two means it joined or left between.

A prototype is a mean, so with the numbers of samples known

    n' p' - n p = sum of the features that joined (or minus those that left),

and a class that grew by one image shows that image's features as if it were sent alone, however
large n is. (Two counting queries that differ in one record: Denning, Denning, Schwartz. The Tracker.
ACM TODS 4(1), 1979.) Exact while both means come from one extractor: one with frozen layers, one that
has converged, or both of one round; else the drift of the features enters n-fold. Rounding enters
n-fold too: single precision leaves 1e-5 at n = 100, half precision a tenth. Simulated clients keep their
data, so that recorded prototypes seldom form such pairs; replayed ones show what would be recovered.
The features are then used as any prototype of one sample: here they are compared with a gallery's
(whitened with the class's covariance), which is membership of a known image at n = 1.

Claim: feature float64 [k, D], n (samples before), moved (how many joined, < 0: left), label, sender,
model [k], earlier and later (artifact ids), origin [k]; extractors [models], objects; whiten
[models, D, D]; typical [k, D]: mean features of auxiliary images of the class.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.covariance import shrink_covariance
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY, Prototype, Source, prototypes
from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.prototypes._differences import (
    DifferenceTrial,
    count_movers,
    judge_differences,
    measure_pairs,
)
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


class PrototypeDifference(Attack):
    card = Card(
        title="Differences of successive prototypes",
        source="tracker attack: Denning, Denning, Schwartz, ACM TODS 4(1), 1979, on means",
        aim=Aim.RECONSTRUCTION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.LOCAL_PROTOTYPES,),
        also_reads=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS),
        aids=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA, Kind.GLOBAL_MODEL, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS),
        control="pairs",
        rounds="all",
        learns="the features of a single image that joined or left a class, at any size of the class",
        does_not_show="what is learned where the extractor changed between the two prototypes, nor where "
        "clients never add or remove images",
        remedy="clip and noise prototypes with a stated epsilon, composed over all rounds; rounding to half "
        "precision is no protection below a hundred samples",
        effort=Effort(seconds=2, grows=("network", "replays"), examples=500),
    )

    @settings
    class Config:
        grows: bool = Field(
            default=False,
            description="whether clients may add or remove images, so that replayed pairs alone are of use",
        )
        most_moved: AtLeastOne = Field(
            default=1, description="images that joined or left between two prototypes, at most"
        )
        gallery: int = Field(default=100, ge=3, description="images among which the moved one is looked for")
        max_pairs: AtLeastOne = Field(default=2000, description="pairs of prototypes to compare, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        aux = knowledge.granted_auxiliary
        found = self._pairs(prototypes(view))
        if not found:
            raise UserError(
                "no two prototypes of one class and client differ by a known number of samples",
                hint="record all rounds, and the counts that are sent with prototypes",
            )
        found = [found[i] for i in np.sort(rng.permutation(len(found))[: self.config.max_pairs])]
        sources = list({id(s): s for s, _, _ in found}.values())
        extractors = np.empty(len(sources), dtype=object)
        whiten, typical = [], {}
        for m, source in enumerate(sources):
            extractors[m] = knowledge.granted_architecture(source.weights.values)
            features = extractors[m].features(aux.x).astype(np.float64)
            spread, axes = np.linalg.eigh(shrink_covariance(features))
            # dead units have no variance
            whiten.append(axes / np.sqrt(np.maximum(spread, 1e-6 * spread.mean())))
            for c in {b.label for s, _, b in found if s is source}:
                own = aux.y == c
                typical[m, c] = features[own if own.any() else slice(None)].mean(0)
        number = {id(s): m for m, s in enumerate(sources)}
        before = np.array([a.samples for _, a, _ in found])
        after = np.array([b.samples for _, _, b in found])
        moved = after - before
        first = np.stack([a.feature for _, a, _ in found]).astype(np.float64)
        second = np.stack([b.feature for _, _, b in found]).astype(np.float64)
        label = np.array([b.label for _, _, b in found])
        model = np.array([number[id(s)] for s, _, _ in found])
        return {
            "feature": (after[:, None] * second - before[:, None] * first) / moved[:, None],
            "n": before,
            "moved": moved,
            "label": label,
            "sender": np.array([b.sender.index for _, _, b in found]),
            "model": model,
            "earlier": np.array([a.artifact for _, a, _ in found]),
            "later": np.array([b.artifact for _, _, b in found]),
            "origin": np.array([b.origin for _, _, b in found]),
            "extractors": extractors,
            "whiten": np.stack(whiten),
            "typical": np.stack([typical[m, c] for m, c in zip(model, label, strict=True)]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        return judge_differences(self._trials(claim, truth, rng), rng)

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_movers(self._trials(claim, truth, rng), claim, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not prototypes(view):
            return "no model was recorded that could have made the prototypes"
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        pairs = self._pairs(prototypes(view))
        if not pairs:
            return "no two prototypes of one class and client differ by a known number of samples"
        if not self.config.grows and all(is_replay(b.origin) for _, _, b in pairs):
            return (
                "no class grew or shrank between two recorded rounds; set prototype_difference.grows "
                "where clients may add or remove images"
            )
        return ""

    @cached_property
    def _trials(self) -> BuiltOnce[list[DifferenceTrial]]:
        gallery = self.config.gallery
        return BuiltOnce(lambda claim, truth, rng: measure_pairs(claim, truth, gallery, rng))

    def _pairs(self, sources: Sequence[Source]) -> list[tuple[Source, Prototype, Prototype]]:
        """The later prototype's source, the earlier and the later prototype."""
        chains = defaultdict(list)
        for source in sources:
            for p in source.prototypes:
                chains[p.sender, p.label, p.origin, p.pair].append((source, p))
        found = []
        for chain in chains.values():
            chain.sort(key=lambda each: (each[1].round, each[1].samples or 0))
            for (_, a), (source, b) in pairwise(chain):
                n, m = a.samples, b.samples
                if n and m and 0 < abs(m - n) <= self.config.most_moved:
                    found.append((source, a, b))
        return found
