"""Clipping: every upload is scaled down to a largest norm, then a rule follows.

What ByzFL (arXiv:2505.24802) puts before nearest-neighbour mixing. Without a `norm` it is the median norm of the
round. With the mean behind it, norm_bound is the same and takes weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._distances import factors
from fedaudit.fl.aggregators._wrapped import Inner, inner
from fedaudit.fl.runtime.ranges import Positive


class Clipping(RowRule):
    title = "Clipping"
    source = "arXiv:2505.24802"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        norm: Annotated[
            Positive | None, Field(description="largest norm of a change; null is the round's median norm")
        ] = None
        rule: Inner = "trimmed_mean"

        def __post_init__(self) -> None:
            inner(self.rule)

    def needs(self) -> int:
        return inner(self.config.rule).needs()

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        scaled = rows * factors(rows, self.config.norm)[:, None].float()
        return inner(self.config.rule).combine(scaled, weights, clients, context)
