"""Condensed membership: was this image among those that a condensed image stands for?

The score is Pearson's correlation of the candidate with the condensed image of its class. Members are
compared with non-members of the same class, by the number of images behind the image: for one
image it is that image, for thirty the score says almost nothing. That is no proof for
large classes: an attack that trains models on the condensed set (Dong, Zhao, Lyu, ICML 2022,
arXiv:2206.00240; Carlini, Feldman, Nasr, arXiv:2209.14987) is another one.

Claim: a rule, since any image can be queried. images [k, D] standardised, label, model (0), sender,
artifact, origin, round [k]; extractors [1], which standardises candidates; senders [s]: all clients that sent
condensed images.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.condensed._images import (
    AIDS,
    REQUIRES,
    collect_condensed_images,
    in_our_words,
    none_here,
    standardise,
)
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.membership import judge_buckets
from fedaudit.attacks.evaluation.tracing import OTHER, TracedMembership
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


class Standardised:
    """What stands for a model here: images to flat standardised rows."""

    def features(self, images: Floats) -> Floats:
        return to_rows(standardise(images))


class CondensedMembership(TracedMembership):
    what = "condensed images"
    card = Card(
        title="Membership from condensed images",
        source="nearest neighbour, after arXiv:2206.00240",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER),
        requires=REQUIRES,
        aids=AIDS,
        control="condensed",
        rounds="all",
        learns="whether a given image was in a client's training data",
        does_not_show="what models trained on the condensed images reveal of single images",
        remedy="send no condensed image of a class with few images, and add calibrated noise",
        effort=Effort(seconds=1.0, grows=("pixels",)),
    )

    @settings
    class Config:
        members: AtLeastOne = Field(default=500, description="members scored for one condensed image, at most")
        others: int = Field(
            default=1000, ge=2, description="non-members of the class scored for one condensed image, at most"
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found, extractors = collect_condensed_images(view), np.empty(1, dtype=object)
        extractors[0] = Standardised()
        return {
            **found,
            **list_senders(view, Kind.CONDENSED_IMAGES),
            "images": Standardised().features(found["images"]),
            "model": np.zeros(len(found["label"]), np.int64),
            "extractors": extractors,
        }

    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        """Correlation of each candidate with condensed image `row`; features [m, D] -> [m]."""
        image: Floats = claim["images"][row]
        return np.asarray(features @ image / len(image))

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        buckets = [replace(b, against="non-members") for b in self._tracer(claim, truth, rng).buckets]
        return in_our_words(judge_buckets(buckets, len(buckets), [b.silent for b in buckets], OTHER))

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return none_here(view)
