"""Krum: the one upload that is nearest to the others becomes the model's change.

Blanchard, El Mhamdi, Guerraoui, Stainer. Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent. NeurIPS 2017. arXiv:1703.02757, sec. 4:

    score(i) = sum of the n - f - 2 smallest squared distances from i to others;   the lowest score is taken

Ties go to the upload that came first. Published code differs: ByzFL and FLPoison sum n - f - 1 distances,
FLPoison without the square; the repository of bucketing squares twice. Needs n >= f + 3 for a
distance to sum; the proof needs n > 2f + 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._distances import scores, squared
from fedaudit.fl.runtime.ranges import AtLeastZero


class Krum(RowRule):
    title = "Krum"
    source = "arXiv:1703.02757, sec. 4"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        f: Annotated[AtLeastZero, Field(description="malicious clients assumed among those heard")] = 1

    def needs(self) -> int:
        return int(self.config.f) + 3

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        chosen = int(scores(squared(rows), self.config.f).argmin())
        return Combined(change=rows[chosen].double(), kept={clients[chosen]: 1.0})
