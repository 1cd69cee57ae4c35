"""FoolsGold: clients whose updates of the last layer have been alike over the rounds weigh less.

Fung, Yoon, Beschastnikh. The Limitations of Federated Learning in Sybil Settings. RAID 2020. arXiv:1808.04866,
Algorithm 1, as the authors' code: of each client the changes of the head (where nothing is called that: of all
weights) are added up over the rounds it was heard in; v_i is its largest cosine with another; cosines are
pardoned by v_i / v_j; weights 1 - v_i are brought to at most 1, to .99 where they are 1, and through a logit:

    w <- log(w / (1 - w) + eps) + .5, cut to [0, 1];   the change is sum_i w_i d_i / sum_i w_i

Changed: the authors add w_i d_i / n to the model. eps 1e-5. All weights 0: no step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import sum_weighted_rows

EPS = 1e-5


class FoolsGold(RowRule):
    title = "FoolsGold"
    source = "arXiv:1808.04866, Alg. 1"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        columns = [context.columns[k] for k in context.head if k in context.columns]
        head = torch.cat([rows[:, c] for c in columns], 1) if columns else rows
        history = dict(context.state.get("history", {}))
        for k, row in zip(clients, head, strict=True):
            history[str(k)] = history.get(str(k), torch.zeros(len(row))).double() + row.double()
        found = trust(torch.stack([history[str(k)] for k in clients]))
        total = float(found.sum())
        change = (
            sum_weighted_rows(rows, found / total) if total else torch.zeros(rows.shape[1], dtype=torch.float64)
        )
        kept = dict(zip(clients, found.tolist(), strict=True))
        return Combined(change=change, kept=kept, state={"history": history})


def trust(history: Tensor) -> Tensor:
    """[n, D] summed changes -> [n] weights in 0..1."""
    long = history.norm(dim=1, keepdim=True)
    unit = history / torch.where(long > 0, long, 1.0)
    cosines = (unit @ unit.T).fill_diagonal_(0) if len(history) > 1 else torch.zeros(1, 1, dtype=torch.float64)
    most = cosines.max(1).values + EPS
    pardon = torch.where(most[:, None] < most[None, :], most[:, None] / most[None, :], 1.0)
    w = (1 - (cosines * pardon).max(1).values).clamp(0, 1)
    if not float(w.max()):
        return w
    w = w / w.max()
    w = torch.where(w == 1, 0.99, w)
    return ((w / (1 - w) + EPS).log() + 0.5).clamp(0, 1)
