"""Median: of each weight of the model, the middle one of what the clients sent.

Yin, Chen, Ramchandran, Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates.
ICML 2018. arXiv:1803.01498, Algorithm 1, option I. Of an even number the mean of the two middle ones. Takes no
weights: a client that claims many examples counts as one.
"""

from collections.abc import Sequence

from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import median


class Median(RowRule):
    title = "Coordinate-wise median"
    source = "arXiv:1803.01498, Alg. 1"
    by_class = True

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        return Combined(change=median(rows), kept=dict.fromkeys(clients, 1.0))
