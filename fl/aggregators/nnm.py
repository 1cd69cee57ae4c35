"""Nearest-neighbour mixing: every upload is replaced by the mean of the n - f nearest to it, then a rule follows.

Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan. Fixing by Mixing: A Recipe for Optimal Byzantine ML under
Heterogeneity. AISTATS 2023. arXiv:2302.01772, Algorithm 2. The nearest of each is itself; of equal distances the
first upload counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import mixed
from fedaudit.fl.aggregators._distances import squared
from fedaudit.fl.aggregators._wrapped import Inner, inner
from fedaudit.fl.runtime.ranges import AtLeastZero


class NNM(RowRule):
    title = "Nearest-neighbour mixing"
    source = "arXiv:2302.01772, Alg. 2"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        f: Annotated[AtLeastZero, Field(description="malicious clients assumed among those heard")] = 1
        rule: Inner = "trimmed_mean"

        def __post_init__(self) -> None:
            inner(self.rule, self.f)

    def needs(self) -> int:
        return max(int(self.config.f) + 1, inner(self.config.rule, self.config.f).needs())

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        return inner(self.config.rule, self.config.f).combine(mix(rows, self.config.f), weights, clients, context)


def mix(rows: Tensor, f: int) -> Tensor:
    """[n, P] -> [n, P] float32: of each row the mean of the n - f nearest."""
    n = len(rows)
    near = squared(rows).fill_diagonal_(-1.0).argsort(dim=1, stable=True)[:, : n - f]
    share = torch.zeros(n, n, dtype=torch.float64).scatter_(1, near, 1.0 / (n - f))
    return mixed(rows, share)
