"""Copies: how near a generated picture comes to one picture, measured against others like it.

Carlini, Hayes, Nasr, Jagielski, Sehwag, Tramer, Balle, Ippolito, Wallace. Extracting Training Data from
Diffusion Models. USENIX Security 2023. arXiv:2301.13188, sec. 5.1 (the adaptive threshold): a plain
distance finds plain pictures, which are near to everything; what makes a copy is that one picture is far
nearer than its neighbours are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.measures.matched import Matched

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Copies:
    """For each of m members and o others, the generated picture that comes nearest to a copy of it."""

    members: Floats  # [m], ratios: 1 for what is no nearer than its neighbours, 0 for an exact copy
    others: Floats  # [o]
    copy: NDArray[np.int64]  # [m], which of the generated pictures
    nearest_other: NDArray[np.int64]  # [m], the one of the others that is nearest to that


def copies(made: Floats, m: Matched, neighbours: int, batch: int = 500) -> Copies:
    """Ratios of members and others alike, from the pictures `made` [g, C, H, W].

    The ratio of x is the least over g of ||g - x|| / mean of ||g - y||, with y the `neighbours` pictures
    nearest to g of all members and others but x.
    """
    from scipy.spatial.distance import cdist

    n = len(m.members)
    x = np.concatenate([m.members.x, m.others.x]).reshape(n + len(m.others), -1)
    k = min(neighbours, len(x) - 1)
    least, which = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    for i in range(0, len(made), batch):
        away = cdist(made[i : i + batch].reshape(len(made[i : i + batch]), -1), x)
        some = np.partition(away, k, axis=1)[
            :, : k + 1
        ]  # one more than asked, for those that are x
        furthest = some.max(1, keepdims=True)
        all_of = some.sum(1, keepdims=True)
        mean = np.where(away <= furthest, all_of - away, all_of - furthest) / k
        ratio = away / np.maximum(mean, 1e-12)
        best = ratio.argmin(0)
        better = (found := ratio[best, np.arange(len(x))]) < least
        least[better], which[better] = found[better], i + best[better]
    copy = which[:n]
    to_others = cdist(made[copy].reshape(n, -1), x[n:])
    return Copies(members=least[:n], others=least[n:], copy=copy, nearest_other=to_others.argmin(1))
