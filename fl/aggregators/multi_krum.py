"""Multi-Krum: the plain mean of the m uploads that are nearest to the others.

Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017. arXiv:1703.02757, sec. 5: the m lowest scores of Krum
(fl/aggregators/krum.py), counted once; m = 1 is Krum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import mean_of
from fedaudit.fl.aggregators._distances import scores, squared
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero


class MultiKrum(RowRule):
    title = "Multi-Krum"
    source = "arXiv:1703.02757, sec. 5"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        f: Annotated[AtLeastZero, Field(description="malicious clients assumed among those heard")] = 1
        m: Annotated[AtLeastOne | None, Field(description="uploads that are averaged; null is all but f")] = None

    def needs(self) -> int:
        return int(max(self.config.f + 3, self.config.m or 0))

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        m = self.config.m or len(rows) - self.config.f
        chosen = scores(squared(rows), self.config.f).argsort(stable=True)[:m].sort().values.tolist()
        return Combined(change=mean_of(rows, chosen), kept={clients[i]: 1.0 for i in chosen})
