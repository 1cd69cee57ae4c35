"""Latent inversion: a generator can be made to draw its training images more exactly than others.

Chen, Yu, Zhang, Fritz. GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models.
CCS 2020. arXiv:1909.03935, sec. 4.4 (full white box) and 4.5 (calibration). With R_G(x) the nearest image
that a search over z finds in the generator, R_ref(x) in a reference trained on auxiliary images,

    distance     -||x - R_G(x)||              calibrated   -(||x - R_G(x)|| - ||x - R_ref(x)||)

Calibration takes out that plain images are easy to draw. attacks/generators/_latent.py has the search and
what is changed in it. Members and non-members have the same mix of classes.

Claim: as in attacks/generators/_membership.py; `queried` holds the searches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, GeneratorArchitecture, Truth
from fedaudit.attacks.evaluation.matching import Matched
from fedaudit.attacks.evidence import ImageGallery
from fedaudit.attacks.generators._latent import LatentSearch, Settings
from fedaudit.attacks.generators._membership import CARD, GeneratorMembership
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings


class LatentInversion(GeneratorMembership):
    card = replace(
        CARD,
        title="Membership from a generator's latent space (GAN-Leaks, white box)",
        source="arXiv:1909.03935, sec. 4.4 and 4.5",
        does_not_show="what a longer search, another starting point or a perceptual distance would find; "
        "it is no proof of privacy",
        effort=Effort(seconds=28, grows=("pixels",), settings=("steps", "starts")),
    )

    @settings
    class Config(GeneratorMembership.Config):
        max_generators: AtLeastOne = Field(default=4, description="generators to attack, at most")
        members: AtLeastOne = Field(default=100, description="members searched for in one generator, at most")
        non_members: int = Field(
            default=500, ge=2, description="non-members searched for in one generator, about"
        )
        steps: int = Field(default=40, ge=4, description="steps of Adam over z for each image")
        starts: AtLeastOne = Field(
            default=3, description="values of z that the search starts from, for each image"
        )

    def prepare_queries(
        self,
        known: GeneratorArchitecture,
        weights: Sequence[Mapping[str, NDArray[Any]]],
        rng: np.random.Generator,
    ) -> list[Any]:
        settings = Settings(steps=self.config.steps, starts=self.config.starts)
        seed = int(rng.integers(2**63))
        return [LatentSearch(known, w, settings, seed) for w in weights]

    def choose_comparisons(self, m: Matched) -> Matched:
        """About `non_members` of the others, with the same classes: they come class by class."""
        ratio = len(m.others) // max(1, len(m.members))
        kept = max(1, min(ratio, self.config.non_members // max(1, len(m.members))))
        rows = np.flatnonzero(np.arange(len(m.others)) % max(1, ratio) < kept)
        return replace(m, others=m.others.only(rows))

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        """The members that a generator draws best, measured against the reference generator."""
        reference, shown = claim["reference"][0], []
        for search, m in self.pairs(claim, truth):
            if not len(m.members):
                continue
            own, other = search(m.members), reference(m.members)
            best = np.argsort(own.distance - other.distance)[:8]
            shown.append(
                ImageGallery(
                    title="Training images searched for in the generator",
                    caption=f"The {len(best)} of {len(m.members)} training images that the search comes "
                    "nearest to, measured against the same search in a generator that never saw them. Memory "
                    "would show as details that the second row has and the third has not.",
                    rows={
                        "training image": m.members.x[best],
                        "found in the generator": own.image[best],
                        "found in the reference": other.image[best],
                    },
                )
            )
        return shown[:2]
