"""What every attack on generators and critics is held against: pairs that the adversary trained itself.

A pair that memorised a few auxiliary images must be found out, one with random weights must not, and a
reference trained on many auxiliary images says how near a generator comes to images it never saw.
Seeds are the same for every attack, so that one who trains a pair anew gets the weights of the one before;
audit/observer/generators.py keeps them.
"""

from dataclasses import dataclass

import numpy as np

from fedaudit.attacks.attack import Claim, Examples, GeneratorArchitecture, TrainedPair
from fedaudit.attacks.evaluation.matching import Matched, match_members

_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Controls:
    """Three disjoint sets of auxiliary images, and pairs that are trained when wanted."""

    known: GeneratorArchitecture
    own: Examples  # the planted pair's
    rest: Examples  # others like them: nobody trains on these
    other: Examples  # the reference's
    planted_steps: int  # of the generator
    reference_steps: int = 0

    @property
    def planted(self) -> TrainedPair:
        return self._train(self.own, self.planted_steps)

    @property
    def untrained(self) -> TrainedPair:
        return self._train(self.own, 0)

    @property
    def reference(self) -> TrainedPair:
        return self._train(self.other, self.reference_steps)

    def images(self) -> Claim:
        """The planted pair's and the others, as `memorised` reads them from a claim."""
        return {"planted_x": self.own.x, "planted_y": self.own.y, "rest_x": self.rest.x, "rest_y": self.rest.y}

    def _train(self, images: Examples, steps: int) -> TrainedPair:
        return self.known.train(images, steps, np.random.default_rng(_SEED))


def controls(
    known: GeneratorArchitecture, auxiliary: Examples, planted: int, planted_steps: int, reference_steps: int = 0
) -> Controls:
    """`planted` images for the planted pair, and half of the others for the reference."""
    order = np.random.default_rng(_SEED).permutation(len(auxiliary))
    half = planted + (len(auxiliary) - planted) // 2
    own, rest, other = (
        Examples(x=auxiliary.x[rows], y=auxiliary.y[rows]) for rows in np.split(order, [planted, half])
    )
    return Controls(
        known=known, own=own, rest=rest, other=other, planted_steps=planted_steps, reference_steps=reference_steps
    )


def match_planted_pair(claim: Claim) -> Matched:
    """What a claim's planted pair learnt, and others like it."""
    own = Examples(x=claim["planted_x"], y=claim["planted_y"])
    rest = Examples(x=claim["rest_x"], y=claim["rest_y"])
    return match_members(own, rest, np.random.default_rng(_SEED), len(own))
