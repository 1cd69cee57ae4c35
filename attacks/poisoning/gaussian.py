"""Gaussian: compromised clients send noise of a chosen length in place of what they learnt.

Blanchard et al. NeurIPS 2017. arXiv:1703.02757, sec. 5. Normal numbers, scaled so that their norm is `scale`
times the median norm of the honest changes of the round. Changed: there a variance is given (200); a length that
goes with the model's own says how strong the attack is whatever the model.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Card


class Gaussian(Colluding):
    card = Card(
        title="Gaussian noise",
        source="arXiv:1703.02757, sec. 5",
        does="buries what the others learn under noise",
        remedy="use a rule that leaves out distant updates, such as multi_krum, or bound their norm",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        scale: Annotated[Amount, Field(description="length of the noise over the median honest norm")] = 10.0

    def forge(self, crowd: Crowd) -> Forge:
        length = self.config.scale * crowd.median_norm

        def forge(client: int) -> torch.Tensor:  # noqa: ARG001
            noise = torch.randn(crowd.honest.shape[1], generator=crowd.meeting.rng, dtype=torch.float64)
            scaled: torch.Tensor = noise * (length / noise.norm())
            return scaled

        return forge
