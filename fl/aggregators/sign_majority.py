"""Sign majority: each weight moves by one step of equal size, the way most clients want it to.

Bernstein, Zhao, Azizzadenesheli, Anandkumar. signSGD with Majority Vote is Communication Efficient and Fault
Tolerant. ICLR 2019. arXiv:1810.05291, Algorithm 1. Changed: clients send whole updates, of which the signs are
taken; the size of a step is not given there for updates: it is `step`, or the median absolute
change, averaged over the weights.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import by_columns, middle
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings


class SignMajority(RowRule):
    title = "Majority of signs"
    source = "arXiv:1810.05291, Alg. 1"

    @settings
    class Config(RowRule.Config):
        step: Positive | None = Field(
            default=None,
            description="how far a weight moves; null is the median absolute change, averaged over weights",
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        signs = by_columns(rows, lambda block: np.sign(np.sign(block).sum(axis=0, dtype=np.float64)))
        step = self.config.step
        if step is None:
            step = float(by_columns(rows, lambda block: middle(np.abs(block))).mean())
        return Combined(change=signs * step, kept=dict.fromkeys(clients, 1.0))
