"""Generator distance: pictures that a generator comes closest to were among its training pictures.

Chen, Yu, Zhang, Fritz. GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models.
CCS 2020. arXiv:1909.03935, sec. 4.2 (full black box) and 4.5 (calibration). With G(z_1) .. G(z_n) what the
generator makes, R what a reference generator trained on auxiliary pictures makes, in pixels,

    distance     -min_i ||x - G(z_i)||              calibrated   -(min_i ||x - G(z_i)|| - min_j ||x - R_j||)

Calibration takes out that plain pictures are near to everything. Besides, the share of generated pictures
that are nearer to a training picture than to any of equally many held-out ones (distance to closest
record): half, where the generator copies nothing; and the geometric mean of the ratio of both distances:
1 there. Members and held-out have the same mix of classes.

Claim: as in attacks/generators/_membership.py; `asked` holds the pictures made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Baseline, Claim, Evidence, Gallery, GeneratorArchitecture, Images, Truth
from attacks.generators._copies import closest
from attacks.generators._membership import CARD, GeneratorMembership, Pairs
from attacks.trials.distances import Nearest, nearest
from attacks.trials.membership import CONFIDENCE, CONTROL_CONFIDENCE

Floats = NDArray[np.floating[Any]]
_FEW = 1000  # generated pictures looked at one by one


@dataclass(frozen=True)
class Made:
    """What a generator made, [g, C, H, W]."""

    pictures: Floats

    def __call__(self, images: Images) -> Nearest:
        return nearest(images.x, self.pictures)


class GeneratorDistance(GeneratorMembership):
    card = replace(
        CARD,
        title="Membership from generated pictures (GAN-Leaks)",
        source="arXiv:1909.03935, sec. 4.2 and 4.5",
        does_not_show="what the weights of the generator tell beyond the pictures it makes; it is no "
        "proof of privacy",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(GeneratorMembership.Config):
        pictures: int = 4000  # generated for each; the paper takes up to 20,000

        def least(self) -> Mapping[str, int]:
            return {"pictures": 1}

    def asked(
        self,
        known: GeneratorArchitecture,
        weights: Sequence[Mapping[str, NDArray[Any]]],
        rng: np.random.Generator,
    ) -> list[Any]:
        return [Made(known.pictures(w, self.config.pictures, rng).x) for w in weights]

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        pairs = self.pairs(claim, truth)
        found = super().measure(claim, truth, rng)
        found += _copies(pairs, rng, "none")
        return found + _copies(self.unseen(pairs, rng), rng, "negative")

    def galleries(self, claim: Claim, truth: Truth) -> list[Gallery]:
        """The generated pictures that are nearest to a training picture, beside their neighbours."""
        shown = []
        for (asked, m), clients in zip(self.pairs(claim, truth), claim["behind"], strict=True):
            if not len(m.members):
                continue
            few, held_out = asked.pictures[:_FEW], m.equally_many.x
            seen, unseen = nearest(few, m.members.x), nearest(few, held_out)
            worst = np.argsort(seen.distance / np.maximum(unseen.distance, 1e-9))[:8]
            shown.append(
                Gallery(
                    title="Generated pictures nearest to training pictures",
                    caption=f"A generator of {len(clients)} clients: the 8 of {len(few)} generated pictures that "
                    "come nearest to a training picture, measured against the nearest of as many held-out ones. "
                    "A copy would look like its training picture and unlike the held-out one.",
                    rows={
                        "generated": few[worst],
                        "nearest training picture": m.members.x[seen.index[worst]],
                        "nearest held-out picture": held_out[unseen.index[worst]],
                    },
                )
            )
        return shown[:2]


def _copies(pairs: Pairs, rng: np.random.Generator, control: Literal["none", "negative"]) -> list[Evidence]:
    """Generated pictures nearer to members than to equally many others: how many, and how much nearer."""
    found = [
        closest(asked.pictures[:_FEW], m.members.x, m.equally_many.x, rng) for asked, m in pairs if len(m.members)
    ]
    if not found:
        return []
    confidence = CONTROL_CONFIDENCE if control == "negative" else CONFIDENCE
    share, ratio = (np.mean([getattr(f, name) for f in found], axis=0) for name in ("share", "ratio"))

    def reach(mixed: Floats, none: float) -> tuple[float, float]:
        """As far to either side as chance alone goes."""
        half = np.quantile(np.abs(mixed[1:] - none), confidence)
        return float(mixed[0] - half), float(mixed[0] + half)

    low, high = reach(share, 0.5)
    common: dict[str, Any] = {
        "trials": _FEW * len(found),
        "confidence": confidence,
        "control": control,
        "condition": {"score": "closest record"},
    }
    return [
        Evidence(
            measure="copied_share",
            value=float(share[0]),
            unit="fraction",
            interval=(max(0.0, low), min(1.0, high)),
            baselines=(Baseline(name="no copying", value=0.5),),
            note="generated pictures nearer to a training picture than to any of equally many held-out ones",
            **common,
        ),
        Evidence(
            measure="closest_ratio",
            value=float(np.exp(ratio[0])),
            unit="index",
            higher_is_worse=False,
            interval=tuple(map(math.exp, reach(ratio, 0.0))),  # type: ignore[arg-type]
            baselines=(Baseline(name="no copying", value=1.0),),
            note="distance of a generated picture to the nearest training picture, by that to the nearest of "
            "equally many held-out ones",
            **common,
        ),
    ]
