"""Divide and conquer: uploads that stand out along the direction in which all differ most are left out.

Shejwalkar, Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning. NDSS 2021, Algorithm 2. `rounds` times on a random share of the coordinates: the squared projection of
each centred upload on the first right singular vector is its score, and the `leave` * f highest are out. Who is
in every time is averaged; where nobody is, all are.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers, need_majority
from fedaudit.fl.aggregators._rows import mean_of
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive, PositiveShare
from fedaudit.fl.runtime.settings import settings


class DnC(AssumingRule):
    title = "Divide and conquer"
    source = "NDSS 2021, Alg. 2"

    @settings
    class Config(AssumingRule.Config):
        rounds: AtLeastOne = Field(default=5, description="times that coordinates are drawn")
        coordinates: PositiveShare = Field(default=0.2, description="share of the coordinates that is drawn")
        leave: Positive = Field(default=1.0, description="uploads left out each time, over f")

    def needs(self, heard: int) -> int:
        f = count_attackers(self.config.f, heard)
        return max(1 + round(float(self.config.leave) * f), need_majority(f, heard))

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        c, (n, size) = self.config, rows.shape
        f = count_attackers(c.f, n)
        rng, inside = context.generator(), torch.ones(n, dtype=torch.bool)
        count = max(1, round(c.coordinates * size))
        for _ in range(c.rounds):
            drawn = torch.randperm(size, generator=rng)[:count] if count < size else torch.arange(size)
            part = rows[:, drawn].double()
            part = part - part.mean(0)
            # the left singular vectors, times their values, are the projections on the right ones
            values, vectors = torch.linalg.eigh(part @ part.T)
            score = (vectors[:, -1] * values[-1].clamp(min=0).sqrt()).square()
            out = n - round(c.leave * f)
            inside &= torch.zeros(n, dtype=torch.bool).scatter_(0, score.argsort(stable=True)[:out], True)
        if not inside.any():
            inside[:] = True
        chosen = inside.nonzero()[:, 0].tolist()
        return Combined(change=mean_of(rows, chosen), kept={clients[i]: 1.0 for i in chosen})
