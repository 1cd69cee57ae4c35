"""Capped mean: the weighted mean, in which no client weighs more than three quarters of them do.

Weights follow what clients claim of their numbers of examples; a claim a thousand times too large makes one
client the model. Weights above the 75th percentile of the round, rounded down to a weight that was claimed, are
lowered to it. Of this project, against count_inflation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import weighted
from fedaudit.fl.runtime.ranges import PositiveShare


class CappedMean(RowRule):
    title = "Mean of capped weights"
    source = "this project"
    by_class = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        percentile: Annotated[
            PositiveShare, Field(description="share of the clients whose weights stay as they are, at least")
        ] = 0.75

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        cap = float(weights.quantile(self.config.percentile, interpolation="lower"))
        capped = weights.clamp(max=cap) if cap > 0 else weights
        kept = dict(zip(clients, capped.tolist(), strict=True))
        return Combined(change=weighted(rows, capped / capped.sum()), kept=kept)
