"""Krum and what builds on its scores: which uploads are nearest to the others."""

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers, need_majority
from fedaudit.fl.aggregators._rows import Block, by_columns, mean_of, nearest, scores, square_distances
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("bulyan", "krum", "multi_krum")


class Krum(AssumingRule):
    """Krum: the one upload that is nearest to the others becomes the model's change.

    Blanchard, El Mhamdi, Guerraoui, Stainer. Machine Learning with Adversaries: Byzantine Tolerant Gradient
    Descent. NeurIPS 2017. arXiv:1703.02757, sec. 4:

        score(i) = sum of the n - f - 2 smallest squared distances from i to others;   the lowest score is taken

    Ties go to the upload that came first. Published code differs: ByzFL and FLPoison sum n - f - 1 distances,
    FLPoison without the square; the repository of bucketing squares twice. Needs n >= f + 3 for a
    distance to sum, and more honest uploads than malicious ones, as ByzFL does; the proof needs n > 2f + 2.
    """

    title = "Krum"
    source = "arXiv:1703.02757, sec. 4"

    def needs(self, heard: int) -> int:
        return need_krum(self.config.f, heard)

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        chosen = int(scores(square_distances(rows), count_attackers(self.config.f, len(rows))).argmin())
        return Combined(change=rows[chosen].double(), kept={clients[chosen]: 1.0})


class MultiKrum(AssumingRule):
    """Multi-Krum: the plain mean of the m uploads that are nearest to the others.

    Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017. arXiv:1703.02757, sec. 5: the m lowest scores of
    Krum, counted once; m = 1 is Krum.
    """

    title = "Multi-Krum"
    source = "arXiv:1703.02757, sec. 5"

    @settings
    class Config(AssumingRule.Config):
        m: AtLeastOne | None = Field(default=None, description="uploads that are averaged; null is all but f")

    def needs(self, heard: int) -> int:
        return max(need_krum(self.config.f, heard), self.config.m or 0)

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        f = count_attackers(self.config.f, len(rows))
        m = self.config.m or len(rows) - f
        chosen = scores(square_distances(rows), f).argsort(stable=True)[:m].sort().values.tolist()
        return Combined(change=mean_of(rows, chosen), kept={clients[i]: 1.0 for i in chosen})


class Bulyan(AssumingRule):
    """Bulyan: Krum chooses one upload after the other, and each weight is averaged over those near the median.

    El Mhamdi, Guerraoui, Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium. ICML 2018.
    arXiv:1802.07927, sec. 4: n - 2f times the upload with Krum's lowest score among those left is taken;
    then, for each weight, the mean of the n - 4f of the chosen values that are nearest to their median. Needs
    n >= 4f + 3. Flower's Bulyan takes the n - 2f lowest scores in one pass. Of two values equally near the
    first chosen counts. The last pick is between equals: the nearest to each other have one score, and for f
    = 1 all have 0.
    """

    title = "Bulyan"
    source = "arXiv:1802.07927, sec. 4"

    def needs(self, heard: int) -> int:
        return 4 * count_attackers(self.config.f, heard) + 3

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n, f = len(rows), count_attackers(self.config.f, len(rows))
        chosen = picks(square_distances(rows), f)
        most = n - 4 * f

        def near(block: Block) -> Block:
            return nearest(block[chosen], most)

        return Combined(change=by_columns(rows, near), kept={clients[i]: 1.0 for i in chosen})


def need_krum(f: float, heard: int) -> int:
    """The fewest uploads for Krum's scores: a distance to sum, and a majority that is honest."""
    return max(count_attackers(f, heard) + 3, need_majority(f, heard))


def picks(distances: Tensor, f: int) -> list[int]:
    """The n - 2f uploads that repeated Krum takes, in that order."""
    left = list(range(len(distances)))
    chosen = []
    for _ in range(len(distances) - 2 * f):
        best = int(scores(distances[left][:, left], f).argmin())
        chosen.append(left.pop(best))
    return chosen
