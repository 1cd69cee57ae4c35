"""Bulyan: Krum chooses one upload after the other, and each weight is averaged over those near the median.

El Mhamdi, Guerraoui, Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium. ICML 2018.
arXiv:1802.07927, sec. 4: n - 2f times the upload with Krum's lowest score among those left is taken; then, for
each weight, the mean of the n - 4f of the chosen values that are nearest to their median. Needs n >= 4f + 3.
Flower's Bulyan takes the n - 2f lowest scores in one pass. Of two values equally near the first chosen counts.
The last pick is between equals: the nearest to each other have one score, and for f = 1 all have 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from fl.aggregator import Combined, Context, RowRule
from fl.aggregators._columns import Block, by_columns, middle
from fl.aggregators._distances import scores, squared
from fl.ranges import AtLeastZero


class Bulyan(RowRule):
    title = "Bulyan"
    source = "arXiv:1802.07927, sec. 4"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        f: Annotated[AtLeastZero, Field(description="malicious clients assumed among those heard")] = 1

    def needs(self) -> int:
        return 4 * int(self.config.f) + 3

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n, f = len(rows), self.config.f
        chosen = picks(squared(rows), f)
        most = n - 4 * f

        def near(block: Block) -> Block:
            block = block[:, chosen]
            centre = middle(block.copy())[:, None]
            order = np.abs(block - centre).argsort(axis=1, kind="stable")[:, :most]
            found: Block = np.take_along_axis(block, order, axis=1).mean(axis=1, dtype=np.float64)
            return found

        return Combined(change=by_columns(rows, near), kept={clients[i]: 1.0 for i in chosen})


def picks(distances: Tensor, f: int) -> list[int]:
    """The n - 2f uploads that repeated Krum takes, in that order."""
    left = list(range(len(distances)))
    chosen = []
    for _ in range(len(distances) - 2 * f):
        best = int(scores(distances[left][:, left], f).argmin())
        chosen.append(left.pop(best))
    return chosen
