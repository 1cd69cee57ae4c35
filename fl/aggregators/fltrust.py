"""FLTrust: the server trains on examples of its own, and trusts uploads that point the same way.

Cao, Fang, Liu, Gong. FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping. NDSS 2021.
arXiv:2012.13995, Algorithm 2. With g the change that the server's own training makes of the model, on
`holdout.server` and as a client trains,

    w_i = max(0, cos(d_i, g));   change = sum_i w_i d_i ||g|| / ||d_i|| / sum_i w_i

Nobody trusted: no step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import lengths, project_rows, sum_weighted_rows


class FLTrust(RowRule):
    title = "FLTrust"
    source = "arXiv:2012.13995, Alg. 2"
    needs_root = True

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        root = torch.cat([v.double().flatten() for v in context.root.values()])
        size, long = root.norm(), lengths(rows).clamp(min=1e-300)
        trust = (project_rows(rows, root) / (long * size.clamp(min=1e-300))).clamp(min=0)
        total = float(trust.sum())
        kept = dict(zip(clients, trust.tolist(), strict=True))
        if not total:
            return Combined(change=torch.zeros_like(root), kept=kept)
        return Combined(change=sum_weighted_rows(rows, trust * size / long / total), kept=kept)
