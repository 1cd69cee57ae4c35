"""Covariance-bound agnostic filter: uploads along the largest spread lose weight, again and again.

Allouah, Guerraoui, Stephan. Towards Trustworthy Federated Learning with Untrusted Participants. ICML 2025.
arXiv:2505.01874, Algorithm 2. Weights c_i start at 1; while their sum is above n - 2f,

    mu = sum_i c_i d_i / sum_i c_i;   v, lambda: first eigenvector and value of the covariance with these c
    tau_i = <d_i - mu, v>^2;   c_i <- c_i (1 - tau_i / max_j tau_j)

and the mu with the least lambda is the change. ByzFL takes one step of the power method from a random vector for
v; here v is exact, by the n x n inner products, so that nothing is drawn. The largest tau is that of uploads
that still weigh, and each round leaves one out; ByzFL takes it of all, and one upload far away keeps it busy for
good. With f = 0 it is the plain mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers
from fedaudit.fl.aggregators._rows import gram, mean_of, sum_weighted_rows


class CAF(AssumingRule):
    title = "Covariance-bound agnostic filter"
    source = "arXiv:2505.01874, Alg. 2"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n = len(rows)
        inner = gram(rows, mean_of(rows, list(range(n))))
        c = filter_weights(inner, count_attackers(self.config.f, n))
        return Combined(
            change=sum_weighted_rows(rows, c / c.sum()), kept=dict(zip(clients, c.tolist(), strict=True))
        )


def filter_weights(inner: Tensor, f: int) -> Tensor:
    """[n, n] inner products about any centre -> [n] weights of the mean with the least spread."""
    n = len(inner)
    c = best = torch.ones(n, dtype=torch.float64)
    least = float("inf")
    while float(c.sum()) > n - 2 * f:
        share = c / c.sum()
        about = inner @ share
        centred = inner - about[:, None] - about[None, :] + share @ about
        root = share.sqrt()
        values, vectors = torch.linalg.eigh(root[:, None] * centred * root[None, :])
        if float(values[-1]) < least:
            least, best = float(values[-1]), c
        tau = (centred @ (root * vectors[:, -1])).square()
        tau = torch.where(c > 0, tau, 0.0)
        if not float(tau.max()):
            break
        c = c * (1 - tau / tau.max())
    return best
