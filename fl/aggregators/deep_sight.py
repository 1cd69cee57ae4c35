"""DeepSight: uploads trained on few labels are suspected, and a group of alike uploads falls with them.

Rieger, Nguyen, Miettinen, Sadeghi. DeepSight: Mitigating Backdoor Attacks in Federated Learning Through Deep
Model Inspection. NDSS 2022. arXiv:2201.00763, Algorithms 1 to 4. Of the last layer's change, with b its bias and
W its weights, the energy of class c and its share are

    e_c = (|b_c| + sum_h |W_ch|)^2,   NEUP_c = e_c / sum_c e_c

An upload's count of shares above max(.01, 1 / C) times its largest is compared with half of the median count: at
or below it the upload is suspected. Clusters (HDBSCAN of at least two) by NEUP and by the cosines of b are put
together: the distance of two uploads is the share of clusterings that part them. A cluster of which `tolerated`
or more are suspects is left out; the others are clipped to the median norm of all and averaged. Who is in no
cluster stands alone. Left out: the clustering by DDifs, which needs the network's answers to random inputs.
"""

import warnings
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import factors, gram, sum_weighted_rows
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings


class DeepSight(RowRule):
    title = "DeepSight"
    source = "arXiv:2201.00763, Alg. 4"

    @settings
    class Config(RowRule.Config):
        tolerated: PositiveShare = Field(
            default=1 / 3, description="share of suspects from which on a cluster is left out"
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        bias, matrix = self._take_last_layer(rows, context)
        shares = energy_shares(bias, matrix)
        suspected = suspect(shares)
        clusterings = [cluster(torch.cdist(shares, shares)), cluster(cosine_distances(bias))]
        # uploads are as far apart as the share of clusterings that part them
        parted = torch.stack([(c[:, None] != c[None, :]).double() for c in clusterings])
        labels = cluster(parted.mean(0))
        bad = torch.zeros(len(rows), dtype=torch.bool)
        for label in sorted(set(labels.tolist())):
            inside = labels == label
            if float(suspected[inside].double().mean()) >= self.config.tolerated:
                bad |= inside
        kept = {clients[int(i)]: 1.0 for i in (~bad).nonzero()}
        if not kept:  # no step
            return Combined(
                change=torch.zeros(rows.shape[1], dtype=torch.float64), kept=dict.fromkeys(clients, 0.0)
            )
        return Combined(change=sum_weighted_rows(rows, factors(rows, None) * ~bad / len(kept)), kept=kept)

    def _take_last_layer(self, rows: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """[n, C] and [n, C, H]: what uploads change of the last layer."""
        parts = sorted(
            (rows[:, context.columns[k]] for k in context.head if k in context.columns), key=lambda p: p.shape[1]
        )
        if len(parts) != 2 or parts[1].shape[1] % parts[0].shape[1]:
            raise UserError(
                f"{self.title} reads weights and bias of the last layer, and here are {len(parts)} such arrays",
                hint="use a model whose last layer is linear and has a bias, or aggregator: flame",
                key="aggregator",
            )
        bias, matrix = (p.double() for p in parts)
        return bias, matrix.reshape(len(rows), bias.shape[1], -1)


def energy_shares(bias: Tensor, matrix: Tensor) -> Tensor:
    """[n, C], [n, C, H] -> [n, C]: NEUP; equal shares where nothing changes."""
    energy = (bias.abs() + matrix.abs().sum(2)).square()
    total = energy.sum(1, keepdim=True)
    return torch.where(total > 0, energy / total.clamp(min=1e-300), 1 / bias.shape[1])


def suspect(shares: Tensor) -> Tensor:
    """[n, C] -> [n] bool: who moved so few classes that it may have trained on few labels."""
    bar = max(0.01, 1 / shares.shape[1]) * shares.max(1, keepdim=True).values
    counts = (shares > bar).sum(1).double()
    middle = counts.quantile(0.5)
    return (counts <= middle / 2) & (counts < middle)  # with two classes nobody may move any


def cosine_distances(rows: Tensor) -> Tensor:
    """[n, P] -> [n, n]; 1 to rows of length 0."""
    inner = gram(rows.float())
    long = inner.diagonal().clamp(min=0).sqrt()
    sizes = long[:, None] * long[None, :]
    return 1 - torch.where(sizes > 0, inner / sizes.clamp(min=1e-300), 0.0)


def cluster(distances: Tensor) -> Tensor:
    """[n, n] -> [n] numbers of clusters; who is in none has a number of its own."""
    from sklearn.cluster import HDBSCAN

    n = len(distances)
    if n < 3:
        return torch.zeros(n, dtype=torch.long)
    # rounded, so that of equal distances none is nearer by the last bit
    even = ((distances + distances.T) / 2).clamp(min=0).fill_diagonal_(0).round(decimals=9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        found = HDBSCAN(
            min_cluster_size=2, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
        )
        labels = torch.from_numpy(found.fit_predict(even.numpy())).long()
    return torch.where(labels < 0, n + torch.arange(n), labels)
