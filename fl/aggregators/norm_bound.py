"""Norm bound: every upload is scaled down to a largest norm, and then averaged as ever.

Sun, Kairouz, Suresh, McMahan. Can You Really Backdoor Federated Learning? 2019. arXiv:1911.07963, sec. 4, without
its noise. Without a `norm` it is the median norm of the round. Weights are the method's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import weighted
from fedaudit.fl.aggregators._distances import factors
from fedaudit.fl.runtime.ranges import Positive


class NormBound(RowRule):
    title = "Norm bound"
    source = "arXiv:1911.07963, sec. 4"
    of_one = True

    @dataclass(frozen=True, kw_only=True)
    class Config:
        norm: Annotated[
            Positive | None, Field(description="largest norm of a change; null is the round's median norm")
        ] = None

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        share = factors(rows, self.config.norm) * weights
        kept = dict(zip(clients, share.tolist(), strict=True))
        return Combined(change=weighted(rows, share / weights.sum()), kept=kept)
