"""Centered clipping: uploads are drawn to last round's result, none from further than tau.

Karimireddy, He, Jaggi. Learning from History for Byzantine Robust Optimization. ICML 2021. arXiv:2012.10333,
Algorithm 2, `steps` times:

    v <- v + (1/n) sum_i (d_i - v) min(1, tau / ||d_i - v||)

v is the change of the round before, and 0 in the first. Clients weigh alike. Without a `tau` it is the median
distance of the round's uploads to that v, the same in all steps: the first clips half of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import weighted
from fedaudit.fl.aggregators._distances import lengths
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive


class CenteredClipping(RowRule):
    title = "Centered clipping"
    source = "arXiv:2012.10333, Alg. 2"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        tau: Annotated[
            Positive | None, Field(description="largest distance to v; null is the median of the distances")
        ] = None
        steps: Annotated[AtLeastOne, Field(description="clipping steps a round")] = 3

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        v = context.state.get("v", torch.zeros(rows.shape[1])).double()
        factors = torch.ones(len(rows), dtype=torch.float64)
        tau = float(lengths(rows, v).quantile(0.5)) if self.config.tau is None else self.config.tau
        for _ in range(self.config.steps):
            far = lengths(rows, v)
            factors = (tau / far.clamp(min=1e-300)).clamp(max=1.0)
            share = factors / len(rows)
            v = v * (1 - share.sum()) + weighted(rows, share)
        kept = dict(zip(clients, factors.tolist(), strict=True))
        return Combined(change=v, kept=kept, state={"v": v})
