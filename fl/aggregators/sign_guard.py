"""SignGuard: uploads of a usual length whose signs are like those of most others are clipped and averaged.

Xu, Huang, Song, Lan. Byzantine-robust Federated Learning through Collaborative Malicious Gradient Filtering.
ICDCS 2022. arXiv:2109.05872, Algorithm 2. With M the median norm, those with norms in [low M, high M] pass the
first filter; on a random share of the coordinates the shares of positive, zero and negative signs of each upload
are clustered by mean shift, and the largest cluster passes the second. Who passes both is clipped to M and
averaged. The bandwidth is scikit-learn's estimate at the quantile .5, as in the authors' code. Changed: nobody
passes both: the second filter alone decides. The variants with similarities (SignGuard-Sim, -Dist) are left out.
"""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import lengths, sum_weighted_rows
from fedaudit.fl.runtime.ranges import Amount, Positive, PositiveShare
from fedaudit.fl.runtime.settings import settings

SAME = 1e-7  # of distances that come from inner products, in which equal shares are up to 2e-8 apart


class SignGuard(RowRule):
    title = "SignGuard"
    source = "arXiv:2109.05872, Alg. 2"

    @settings
    class Config(RowRule.Config):
        low: Amount = Field(default=0.1, description="least norm, over the median norm")
        high: Positive = Field(default=3.0, description="largest norm, over the median norm")
        coordinates: PositiveShare = Field(default=0.1, description="share of the coordinates that is drawn")

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        size, long = rows.shape[1], lengths(rows)
        bound = float(long.quantile(0.5))
        usual = (long >= self.config.low * bound) & (long <= self.config.high * bound)
        count = max(1, round(self.config.coordinates * size))
        drawn = (
            torch.randperm(size, generator=context.generator())[:count] if count < size else torch.arange(size)
        )
        alike = find_largest_cluster(rows[:, drawn])
        passing = usual & alike if bool((usual & alike).any()) else alike
        factors = passing * (bound / long.clamp(min=1e-300)).clamp(max=1.0)
        kept = {clients[int(i)]: 1.0 for i in passing.nonzero()}
        return Combined(change=sum_weighted_rows(rows, factors / passing.sum()), kept=kept)


def find_largest_cluster(rows: Tensor) -> Tensor:
    """[n] bool: who is in the largest cluster by the shares of signs in rows [n, columns]."""
    from sklearn.cluster import MeanShift, estimate_bandwidth

    signs = rows.sign()
    shares = torch.stack([(signs == s).double().mean(1) for s in (1, 0, -1)], 1).numpy()
    bandwidth = estimate_bandwidth(shares, quantile=0.5)
    if bandwidth <= SAME:  # half of the distances are nothing: equal shares are one cluster
        _, labels = np.unique(shares.round(12), axis=0, return_inverse=True)
    else:
        # shares are multiples of 1 / columns, and many are just as far away as the bandwidth: those are inside
        labels = MeanShift(bandwidth=bandwidth * (1 + 1e-9)).fit(shares).labels_
    labels = np.ravel(labels)
    return torch.from_numpy(labels == np.bincount(labels).argmax())
