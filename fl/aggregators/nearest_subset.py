"""Means of a subset of n - f uploads: the one closest together, or those nearest to a trusted client's."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers
from fedaudit.fl.aggregators._rows import mean_of, scores, square_distances
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("mda", "monna")

MOST_ASSUMED = 12  # 2^f ways to leave out f uploads are tried


class MDA(AssumingRule):
    """Minimum diameter averaging: the mean of the n - f uploads that lie closest together.

    El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault. Genuinely Distributed Byzantine Machine Learning. PODC 2020.
    arXiv:1905.03853, sec. 3.2: of all subsets of n - f uploads the one whose two furthest are nearest. ByzFL
    tries every subset; here f uploads are left out so that no pair left is further apart than r, for the smallest
    such r, which takes 2^f steps at most. Of equal subsets the first uploads count.
    """

    title = "Minimum diameter averaging"
    source = "arXiv:1905.03853, sec. 3.2"

    def check_clients(self, clients: int) -> None:
        super().check_clients(clients)
        self._count_left_out(clients)

    def _count_left_out(self, heard: int) -> int:
        """f; raises UserError where that many uploads have too many subsets."""
        f = count_attackers(self.config.f, heard)
        if f > MOST_ASSUMED:
            raise UserError(
                f"{self.title} with f = {f} tries too many subsets of {heard} uploads",
                hint=f"assume at most {MOST_ASSUMED} malicious clients, or use aggregator: caf",
                key="aggregator.f",
            )
        return f

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        f = self._count_left_out(len(rows))
        chosen = find_closest(square_distances(rows).numpy(), f)
        return Combined(change=mean_of(rows, chosen), kept={clients[i]: 1.0 for i in chosen})


def find_closest(distances: NDArray[np.float64], f: int) -> list[int]:
    """The n - f of n whose largest distance [n, n] is least; of several the first in the order of numbers."""
    n = len(distances)
    values = np.unique(distances[np.triu_indices(n, 1)]) if n > 1 else np.zeros(1)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _can_leave_out(distances > values[middle], range(n), f):
            high = middle
        else:
            low = middle + 1
    far = distances > values[low]
    chosen, left = list[int](), list(range(n))
    for i in range(n):
        if len(chosen) == n - f:
            break
        rest = [j for j in left if j == i or not far[i, j]]  # who can stay beside i
        if len(left) - len(rest) <= len(left) - (n - f) and _can_leave_out(far, rest, len(rest) - (n - f)):
            chosen, left = [*chosen, i], rest
        else:
            left = [j for j in left if j != i]
    return chosen


def _can_leave_out(far: NDArray[np.bool_], members: Iterable[int], count: int) -> bool:
    """Whether at most `count` members can go so that no two of the others are far apart."""
    members = list(members)
    if count < 0:
        return False
    part = far[np.ix_(members, members)]
    degrees = part.sum(1)
    if not degrees.any():
        return True
    if not count or degrees.sum() > 2 * count * degrees.max():
        return False
    worst = int(degrees.argmax())  # either it goes, or all that are far from it
    without = [m for i, m in enumerate(members) if i != worst]
    beside = [m for i, m in enumerate(members) if not part[worst, i]]
    return _can_leave_out(far, without, count - 1) or _can_leave_out(far, beside, count - int(degrees[worst]))


class MoNNA(AssumingRule):
    """MoNNA: the mean of the n - f uploads nearest to that of a client which is trusted.

    Farhadkhani, Guerraoui, Gupta, Hoang, Pinot, Stephan. Robust Collaborative Learning with Linear Gradient
    Overhead. ICML 2023. arXiv:2209.10931, Algorithm 2, where every client is its own trusted one. Changed: one
    client is trusted for all; in rounds in which it is absent, the upload with Krum's lowest score takes its
    place. Of equal distances the first upload counts.
    """

    title = "Nearest-neighbour averaging"
    source = "arXiv:2209.10931, Alg. 2"

    @settings
    class Config(AssumingRule.Config):
        trusted: AtLeastZero = Field(default=0, description="number of the client whose uploads are trusted")

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        f, distances, there = count_attackers(self.config.f, len(rows)), square_distances(rows), list(clients)
        trusted = self.config.trusted
        pivot = there.index(trusted) if trusted in there else int(scores(distances, f).argmin())
        own = distances[pivot].index_fill(0, Tensor([pivot]).long(), -1.0)
        chosen = own.argsort(stable=True)[: len(rows) - f].sort().values.tolist()
        return Combined(change=mean_of(rows, chosen), kept={clients[i]: 1.0 for i in chosen})
