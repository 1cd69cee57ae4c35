"""FLAME: uploads of one large cluster are clipped to the median norm, averaged, and noised.

Nguyen et al. FLAME: Taming Backdoors in Federated Learning. USENIX Security 2022. arXiv:2101.02281, Algorithm 1:
HDBSCAN on cosine distances with clusters of more than half of the clients; clip to the median norm S of *all*
uploads; mean; Gaussian noise of standard deviation noise * S on each weight. Changed: cosines are of the changes,
not of the models, which are nearly parallel. scikit-learn's HDBSCAN; nobody in a cluster: everybody is.
"""

import warnings
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import gram, sum_weighted_rows
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings


class Flame(RowRule):
    title = "FLAME"
    source = "arXiv:2101.02281, Alg. 1"

    @settings
    class Config(RowRule.Config):
        noise: Amount = Field(
            default=1e-3, description="lambda: standard deviation of the noise over the median norm"
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        inner = gram(rows)
        long = inner.diagonal().clamp(min=0).sqrt()
        inside = find_majority_cluster(inner, long)
        bound = float(long.quantile(0.5))
        factors = torch.where(long > bound, bound / long.clamp(min=1e-300), 1.0) * inside
        change = sum_weighted_rows(rows, factors / inside.sum())
        if self.config.noise:
            drawn = torch.randn(len(change), generator=context.generator(), dtype=torch.float64)
            change = change + self.config.noise * bound * drawn
        return Combined(change=change, kept={clients[int(i)]: 1.0 for i in inside.nonzero()})


def find_majority_cluster(inner: Tensor, long: Tensor) -> Tensor:
    """[n] bool: who is in the cluster of more than half, from inner products [n, n] and norms [n]."""
    from sklearn.cluster import HDBSCAN

    n = len(long)
    if n < 3:
        return torch.ones(n, dtype=torch.bool)
    sizes = torch.where(long > 0, long, 1.0)
    distance = (1 - inner / (sizes[:, None] * sizes[None, :])).clamp(min=0).fill_diagonal_(0)
    found = HDBSCAN(
        min_cluster_size=n // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        labels = torch.from_numpy(found.fit_predict(((distance + distance.T) / 2).numpy()))
    inside = labels >= 0
    return inside if bool(inside.any()) else torch.ones(n, dtype=torch.bool)
