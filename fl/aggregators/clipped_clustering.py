"""Clipped clustering: uploads are clipped to the median norm of all rounds, the larger of two clusters averaged.

Li, Ngai, Voigt. An Experimental Study of Byzantine-Robust Aggregation Schemes in Federated Learning. IEEE
Transactions on Big Data 2023. arXiv:2302.07173, Algorithm 1, as Blades: norms of this round count among those of
before; two clusters by average linkage of cosine distances. Uploads of length 0 are at distance 1 from all; of
equal clusters the one with the first upload is taken.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import gram, sum_weighted_rows


class ClippedClustering(RowRule):
    title = "Clipped clustering"
    source = "arXiv:2302.07173, Alg. 1"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        inner = gram(rows)
        long = inner.diagonal().clamp(min=0).sqrt()
        norms = torch.cat([context.state.get("norms", torch.zeros(0, dtype=torch.float64)).double(), long])
        bound = float(norms.quantile(0.5))
        inside = find_larger_half(inner)
        factors = inside * (bound / long.clamp(min=1e-300)).clamp(max=1.0)
        kept = {clients[int(i)]: 1.0 for i in inside.nonzero()}
        return Combined(change=sum_weighted_rows(rows, factors / inside.sum()), kept=kept, state={"norms": norms})


def find_larger_half(inner: Tensor) -> Tensor:
    """[n, n] inner products -> [n] bool: who is in the larger of two clusters by direction."""
    from sklearn.cluster import AgglomerativeClustering

    n = len(inner)
    if n < 3:
        return torch.ones(n, dtype=torch.bool)
    long = inner.diagonal().clamp(min=0).sqrt()
    sizes = long[:, None] * long[None, :]
    cosines = torch.where(sizes > 0, inner / sizes.clamp(min=1e-300), 0.0)
    distance = (1 - (cosines + cosines.T) / 2).clamp(0, 2).fill_diagonal_(0)
    found = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="average")
    labels = torch.from_numpy(found.fit_predict(distance.numpy()))
    first = labels == labels[0]
    return first if 2 * int(first.sum()) >= n else ~first
