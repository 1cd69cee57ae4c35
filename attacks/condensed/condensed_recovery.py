"""Condensed recovery: the image that a condensed image is nearest to.

Gradient matching on a class of few images is gradient inversion in slow motion: with one image of a
class the optimum is that image. The attack does nothing but read the image and set its brightness and
contrast to those of auxiliary images. It is measured by re-identification: the true image among
non-members of its class, by Pearson's correlation (Dong, Zhao, Lyu, ICML 2022, arXiv:2206.00240,
study the privacy of condensed data). The baseline that counts is the class mean, which correlates
with everything of its class.

Images that an adversary would take for started from a real image are those that correlate above 0.9.

Claim: images float32 [k, C, H, W], label, n (-1: not known), sender [k], and as text artifact, origin,
round and extractor (what was compared) [k]; senders [s]: all clients that sent condensed images.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.condensed._images import (
    AIDS,
    REQUIRES,
    collect_condensed_images,
    in_our_words,
    match_brightness,
    none_here,
    standardise,
)
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import count_claimed
from fedaudit.attacks.evaluation.image_evidence import judge_images
from fedaudit.attacks.evaluation.image_trials import ImageTrials, PrototypeBucket
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]
COPY = 0.9  # a correlation that condensation from noise seldom reaches


class CondensedRecovery(Attack):
    card = Card(
        title="Images recovered from condensed images",
        source="nearest neighbour, after arXiv:2206.00240",
        aim=Aim.RECONSTRUCTION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=REQUIRES,
        aids=AIDS,
        control="condensed",
        rounds="all",
        learns="an image a client trained on",
        does_not_show="what an attacker who repeats the condensation on candidates would find",
        remedy="send no condensed image of a class with few images, never start it from a real one, and "
        "add calibrated noise",
        effort=Effort(seconds=3.0, grows=("pixels",)),
    )

    @settings
    class Config:
        gallery: int = Field(default=100, ge=2, description="images among which the true one is looked for")
        show: AtLeastOne = Field(default=8, description="images in a row of the report's figures")
        show_sizes: tuple[AtLeastOne, ...] = Field(
            default=(1, 5, 30),
            description="numbers of images behind a replayed condensed image for which figures are shown",
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found = collect_condensed_images(view)
        like = knowledge.granted_auxiliary.x
        return {
            **found,
            **list_senders(view, Kind.CONDENSED_IMAGES),
            "images": match_brightness(found["images"], like),
            "n": np.full(len(found["label"]), -1),
            "extractor": np.full(len(found["label"]), "pixels"),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found = self._trials(claim, truth, rng).buckets
        evidence = judge_images(found, rng)
        for b in found:
            evidence += self._correlation(b, len(found), rng)
        return in_our_words(evidence)

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_claimed(claim, truth, self._trials(claim, truth, rng).every)

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        found = self._trials(claim, truth).buckets
        own = [b for b in found if b.origin == "recorded"]
        wanted = own[:1] + own[1:][-1:]
        wanted += [b for b in found if b.origin != "recorded" and b.samples in self.config.show_sizes]
        return [self._gallery(b, claim) for b in sorted(wanted, key=lambda b: b.samples)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        return none_here(view)

    @cached_property
    def _trials(self) -> BuiltOnce[ImageTrials]:
        gallery = self.config.gallery
        return BuiltOnce(lambda claim, truth, rng: ImageTrials(claim, truth, gallery, rng, standardise))

    def _correlation(self, b: PrototypeBucket, looks: int, rng: np.random.Generator) -> list[Evidence]:
        """The largest correlation with a member, beside that of as many non-members."""
        own, non_members, means = [], [], []
        for trial, image, mean in zip(b.trials, b.claimed, b.blind[CLASS_MEAN][1], strict=True):
            members = trial.members.x[: len(trial.others)]
            own.append(correlations(image, members).max())
            non_members.append(correlations(image, trial.others.x).max())
            means.append(correlations(mean, members).max())
        values, nearest = np.array(own), "nearest of as many non-members"
        judge = b.judge(looks)
        correlation = judge.judge_values(
            "nearest_correlation",
            values,
            {nearest: np.array(non_members), CLASS_MEAN: np.array(means)},
            rng,
            groups=b.clients,
            bounds=(-1, 1),
            note="Pearson's correlation with the nearest member",
        )
        flagged = judge.judge_hits(
            "copies_flagged",
            values > COPY,
            {nearest: np.array(non_members) > COPY},
            groups=b.clients,
            note=f"correlation above {COPY}: a copy, as if it had started from a real image",
        )
        return [correlation, flagged]

    def _gallery(self, b: PrototypeBucket, claim: Claim) -> ImageGallery:
        picked = np.unique(np.linspace(0, len(b) - 1, self.config.show).round().astype(int))
        nearest = [
            b.trials[i].members.x[correlations(b.claimed[i], b.trials[i].members.x).argmax()] for i in picked
        ]
        rows = [b.trials[i].row for i in picked]
        n = [len(b.trials[i].members) for i in picked]
        behind = f"n = {min(n)}" if min(n) == max(n) else f"n = {min(n)} to {max(n)}"
        return ImageGallery(
            title=f"Condensed images: {behind}, {b.origin}",
            caption="Leakage is what the condensed image shares with a real image and the class mean does not.",
            rows={
                "a real image of that class": b.targets[picked],
                "condensed": b.claimed[picked],
                "nearest real image": np.stack(nearest),
                "class mean": b.blind[CLASS_MEAN][1][picked],
            },
            columns=tuple(
                f"client {claim['sender'][r]}, class {claim['label'][r]}, n = {k}"
                for r, k in zip(rows, n, strict=True)
            ),
        )


def correlations(image: Floats, others: Floats) -> NDArray[np.float64]:
    """Pearson's correlation of one image [C, H, W] with each of others [m, C, H, W] -> [m]."""
    one, many = standardise(image[None]), standardise(others)
    return np.asarray((one * many).mean(axis=(1, 2, 3)))
