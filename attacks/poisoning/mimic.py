"""Mimic: compromised clients copy one honest client, so that it counts for many and others for nothing.

Karimireddy, He, Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing. ICLR 2022.
arXiv:2006.09365, sec. 3.2 and appendix B: the honest client with the largest projection on z, the direction in
which honest clients differ most. z is found by power iteration over the first `warmup` rounds and fixed then.
Nothing sent is false, so nothing can be detected; it harms where clients hold different data.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, gather_updates
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.threats.adversary import Adversary, Card, Colluded, Meeting

STEPS = 20  # of power iteration in a round


class Mimic(Adversary):
    card = Card(
        title="Mimic",
        source="arXiv:2006.09365, sec. 3.2",
        does="gives one honest client the weight of several, so that the model forgets the others' classes",
        remedy="use bucketing before a robust rule",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        warmup: Annotated[AtLeastOne, Field(description="rounds in which the direction is still learnt")] = 1

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gather_updates(meeting)
        z, rounds = meeting.before.get("z"), meeting.before.get("rounds", 0)
        if z is None:
            z = torch.randn(crowd.honest.shape[1], generator=meeting.rng, dtype=torch.float64)
        if rounds < self.config.warmup:
            gaps = crowd.honest - crowd.mean
            for _ in range(STEPS):
                new = gaps.T @ (gaps @ z)
                z = new / new.norm() if float(new.norm()) else z
        copied = crowd.honest[int((crowd.honest @ z).argmax())]
        return replace(crowd.send(lambda _: copied), state={"z": z, "rounds": rounds + 1})
