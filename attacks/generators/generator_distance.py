"""Generator distance: images that a generator comes closest to were among its training images.

Chen, Yu, Zhang, Fritz. GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models.
CCS 2020. arXiv:1909.03935, sec. 4.2 (full black box) and 4.5 (calibration). With G(z_1) .. G(z_n) what the
generator makes, R what a reference generator trained on auxiliary images makes, in pixels,

    distance     -min_i ||x - G(z_i)||              calibrated   -(min_i ||x - G(z_i)|| - min_j ||x - R_j||)

Calibration takes out that plain images are near to everything. Besides, the share of generated images
that are nearer to a training image than to any of equally many held-out ones (distance to closest
record): half, where the generator copies nothing; and the geometric mean of the ratio of both distances:
1 there. Members and held-out have the same mix of classes.

Claim: as in attacks/generators/_membership.py; `queried` holds the images made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Examples, GeneratorArchitecture, Truth
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evidence import Baseline, Evidence, ImageGallery
from fedaudit.attacks.generators._copies import closest
from fedaudit.attacks.generators._membership import CARD, GeneratorMembership, Pairs
from fedaudit.attacks.modality.images import Nearest, nearest
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]
_FEW = 1000  # generated images looked at one by one


@dataclass(frozen=True)
class Made:
    """What a generator made, [g, C, H, W]."""

    images: Floats

    def __call__(self, images: Examples) -> Nearest:
        return nearest(images.x, self.images)


class GeneratorDistance(GeneratorMembership):
    card = replace(
        CARD,
        title="Membership from generated images (GAN-Leaks)",
        source="arXiv:1909.03935, sec. 4.2 and 4.5",
        does_not_show="what the weights of the generator reveal beyond the images it makes; it is no "
        "proof of privacy",
    )

    @settings
    class Config(GeneratorMembership.Config):
        images: AtLeastOne = Field(
            default=4000, description="images made by each generator; the paper takes up to 20,000"
        )

    def prepare_queries(
        self,
        known: GeneratorArchitecture,
        weights: Sequence[Mapping[str, NDArray[Any]]],
        rng: np.random.Generator,
    ) -> list[Any]:
        return [Made(known.images(w, self.config.images, rng).x) for w in weights]

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        pairs = self.pairs(claim, truth)
        found = super().measure(claim, truth, rng)
        found += _copies(pairs, rng, "none")
        return found + _copies(self.non_members(pairs, rng), rng, "negative")

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        """The generated images that are nearest to a training image, beside their neighbours."""
        shown = []
        for (queried, m), clients in zip(self.pairs(claim, truth), claim["behind"], strict=True):
            if not len(m.members):
                continue
            few, held_out = queried.images[:_FEW], m.equally_many.x
            seen, non_members = nearest(few, m.members.x), nearest(few, held_out)
            worst = np.argsort(seen.distance / np.maximum(non_members.distance, 1e-9))[:8]
            shown.append(
                ImageGallery(
                    title="Generated images nearest to training images",
                    caption=f"A generator of {len(clients)} clients: the 8 of {len(few)} generated images that "
                    "come nearest to a training image, measured against the nearest of as many held-out ones. "
                    "A copy would look like its training image and unlike the held-out one.",
                    rows={
                        "generated": few[worst],
                        "nearest training image": m.members.x[seen.index[worst]],
                        "nearest held-out image": held_out[non_members.index[worst]],
                    },
                )
            )
        return shown[:2]


def _copies(pairs: Pairs, rng: np.random.Generator, control: Literal["none", "negative"]) -> list[Evidence]:
    """Generated images nearer to members than to equally many others: how many, and how much nearer."""
    found = [
        closest(queried.images[:_FEW], m.members.x, m.equally_many.x, rng)
        for queried, m in pairs
        if len(m.members)
    ]
    if not found:
        return []
    judge = Judge(control=control, condition={"score": "closest record"})
    share, ratio = (np.mean([getattr(f, name) for f in found], axis=0) for name in ("share", "ratio"))

    def reach(mixed: Floats, none: float) -> tuple[float, float]:
        """As far to either side as chance alone goes."""
        half = np.quantile(np.abs(mixed[1:] - none), judge.confidence)
        return float(mixed[0] - half), float(mixed[0] + half)

    low, high = reach(share, 0.5)
    trials, (least, most) = _FEW * len(found), reach(ratio, 0.0)
    return [
        judge.state(
            "copied_share",
            float(share[0]),
            trials,
            (max(0.0, low), min(1.0, high)),
            [Baseline(name="no copying", value=0.5)],
            "generated images nearer to a training image than to any of equally many held-out ones",
        ),
        judge.state(
            "closest_ratio",
            float(np.exp(ratio[0])),
            trials,
            (math.exp(least), math.exp(most)),
            [Baseline(name="no copying", value=1.0)],
            "distance of a generated image to the nearest training image, by that to the nearest of equally many "
            "held-out ones",
        ),
    ]
