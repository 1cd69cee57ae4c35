"""Geometric median: the point with the smallest sum of distances to the uploads.

Pillutla, Kakade, Harchaoui. Robust Aggregation for Federated Learning. IEEE TSP 2022. arXiv:1912.13445,
Algorithm 2 (smoothed Weiszfeld):

    v <- sum_i d_i / max(nu, ||d_i - v||)  /  sum_i 1 / max(nu, ||d_i - v||)

from the median until the step is below 1e-9 of ||v||, at most `iterations` times. Changed: it starts from the
coordinate-wise median, not from the mean; uploads weigh alike; nu is `nu` times the median distance of the
uploads from the start, so that no scale of a model is special. v is always a mean of the uploads and the median
that it started from, so that steps are made on their weights, on one matrix of inner products.

The steps come ever slower to an upload that is the geometric median itself. That is the one whose m copies
outweigh the pull of the others (Vardi, Zhang. The multivariate L1-median and associated data depth. PNAS 97,
2000, eq. 2.6):

    || sum_{d_j != d_k} (d_j - d_k) / ||d_j - d_k|| ||  <=  m

which is asked first.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import gram, median, project_rows, sum_weighted_rows
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive
from fedaudit.fl.runtime.settings import settings

ENOUGH = 1e-9
SAME = 1e-12  # of inner products, which say no more of a distance


class GeometricMedian(RowRule):
    title = "Geometric median"
    source = "arXiv:1912.13445, Alg. 2"

    @settings
    class Config(RowRule.Config):
        nu: Positive = Field(
            default=1e-6, description="smallest distance that counts, over the median distance from the start"
        )
        iterations: AtLeastOne = Field(default=1000, description="most steps; 8 in the code of bucketing")

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        start, n = median(rows), len(rows)
        inner, toward, base = gram(rows, start), project_rows(rows, start), float(start.square().sum())
        own, toward = inner.diagonal(), toward - base
        if (middle := find_middle_upload(inner)) is not None:
            return Combined(change=rows[middle].double(), kept=dict.fromkeys(clients, 1.0))
        least = self.config.nu * float(own.clamp(min=0).sqrt().quantile(0.5))
        share = torch.zeros(n, dtype=torch.float64)  # v = start + sum of share_i (d_i - start)
        for _ in range(self.config.iterations):
            far = (own - 2 * inner @ share + share @ inner @ share).clamp(min=0).sqrt()
            new = 1 / far.clamp(min=max(least, 1e-300))
            step, share = new / new.sum() - share, new / new.sum()
            moved = float((step @ inner @ step).clamp(min=0))
            if moved <= (ENOUGH**2) * (base + 2 * float(toward @ share) + float(share @ inner @ share)):
                break
        kept = {k: float(w) * n for k, w in zip(clients, share, strict=True)}
        return Combined(change=sum_weighted_rows(rows, share), kept=kept)


def find_middle_upload(inner: Tensor) -> int | None:
    """The upload that is the geometric median of all, from inner products [n, n]; None where none of them is."""
    own = inner.diagonal()
    squares = (own[:, None] + own[None, :] - inner - inner.T).clamp(min=0)
    equal = squares <= SAME * (own[:, None] + own[None, :])
    pull = torch.where(equal, 0.0, squares.clamp(min=1e-300).rsqrt())
    total = pull.sum(1)
    # of sum_j p_kj (d_j - d_k), from inner products alone
    length = (pull @ inner * pull).sum(1) - 2 * total * (pull * inner).sum(1) + total.square() * own
    excess = length.clamp(min=0).sqrt() - equal.sum(1)
    best = int(excess.argmin())
    return best if float(excess[best]) <= SAME else None
