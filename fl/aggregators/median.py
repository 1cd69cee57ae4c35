"""Coordinate-wise rules: of each weight of the model, the middle of what the clients sent."""

from collections.abc import Sequence

from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers
from fedaudit.fl.aggregators._rows import Block, by_columns, median, nearest, select_ranks, total

PLUGINS = ("mean_around_median", "median", "trimmed_mean")


class Median(RowRule):
    """Median: of each weight of the model, the middle one of what the clients sent.

    Yin, Chen, Ramchandran, Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates. ICML 2018. arXiv:1803.01498, Algorithm 1, option I. Of an even number the mean of the two middle
    ones. Takes no weights: a client that claims many examples counts as one.
    """

    title = "Coordinate-wise median"
    source = "arXiv:1803.01498, Alg. 1"
    by_class = True

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        return Combined(change=median(rows), kept=dict.fromkeys(clients, 1.0))


class TrimmedMean(AssumingRule):
    """Trimmed mean: of each weight the f largest and the f smallest values are left out, the others averaged.

    Yin, Chen, Ramchandran, Bartlett. ICML 2018. arXiv:1803.01498, Algorithm 1, option II, with beta = f / n.
    Takes no weights. Needs n > 2f. Of prototypes of a class that fewer clients hold, the median is taken.
    """

    title = "Trimmed mean"
    source = "arXiv:1803.01498, Alg. 1"
    by_class = True

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n = len(rows)
        f = count_attackers(self.config.f, n)

        def trim(block: Block) -> Block:
            # in order of size, so that the order of the clients changes no bit
            found: Block = total(select_ranks(block, range(f, n - f))) / (n - 2 * f)
            return found

        return Combined(change=by_columns(rows, trim), kept=dict.fromkeys(clients, 1.0))


class MeanAroundMedian(AssumingRule):
    """Mean around the median: of each weight, the mean of the n - f values that are nearest to their median.

    Xie, Koyejo, Gupta. Generalized Byzantine-tolerant SGD. 2018. arXiv:1802.10116, sec. 3.2 (MeaMed). Takes no
    weights. Of values equally near, the first upload's count; ByzFL takes any of them.
    """

    title = "Mean around the median"
    source = "arXiv:1802.10116, sec. 3.2"
    by_class = True

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        most = len(rows) - count_attackers(self.config.f, len(rows))
        change = by_columns(rows, lambda block: nearest(block, most))
        return Combined(change=change, kept=dict.fromkeys(clients, 1.0))
