"""Geometric median: the point with the smallest sum of distances to the uploads.

Pillutla, Kakade, Harchaoui. Robust Aggregation for Federated Learning. IEEE TSP 2022. arXiv:1912.13445,
Algorithm 2 (smoothed Weiszfeld):

    v <- sum_i d_i / max(nu, ||d_i - v||)  /  sum_i 1 / max(nu, ||d_i - v||)

from the median until the step is below 1e-9 of ||v||, at most `iterations` times. Changed: it starts from the
coordinate-wise median, not from the mean; uploads weigh alike. v is always a mean of the uploads and the median
that it started from, so that steps are made on their weights, on one matrix of inner products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import along, gram, median, weighted
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive

ENOUGH = 1e-9


class GeometricMedian(RowRule):
    title = "Geometric median"
    source = "arXiv:1912.13445, Alg. 2"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        nu: Annotated[Positive, Field(description="distance below which an upload counts as that near")] = 1e-6
        iterations: Annotated[AtLeastOne, Field(description="most steps; 8 in the code of bucketing")] = 100

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        start, n = median(rows), len(rows)
        inner, toward, base = gram(rows, start), along(rows, start), float(start.square().sum())
        own, toward = inner.diagonal(), toward - base
        share = torch.zeros(n, dtype=torch.float64)  # v = start + sum of share_i (d_i - start)
        for _ in range(self.config.iterations):
            far = (own - 2 * inner @ share + share @ inner @ share).clamp(min=0).sqrt()
            new = 1 / far.clamp(min=self.config.nu)
            step, share = new / new.sum() - share, new / new.sum()
            moved = float((step @ inner @ step).clamp(min=0))
            if moved <= (ENOUGH**2) * (base + 2 * float(toward @ share) + float(share @ inner @ share)):
                break
        kept = {k: float(w) * n for k, w in zip(clients, share, strict=True)}
        return Combined(change=weighted(rows, share), kept=kept)
