"""Copies: how near generated images come to training images, measured against others like them.

Carlini, Hayes, Nasr, Jagielski, Sehwag, Tramer, Balle, Ippolito, Wallace. Extracting Training Data from
Diffusion Models. USENIX Security 2023. arXiv:2301.13188, sec. 5.1 (the adaptive threshold): a plain
distance finds plain images, which are near to everything; what makes a copy is that one image is far
nearer than its neighbours are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.matching import Matched
from fedaudit.attacks.evaluation.ranking import Present, find_present
from fedaudit.attacks.modality.images import distances, exact

Floats = NDArray[np.floating[Any]]
_MIXINGS = 400
COPY = 0.5  # of the mean distance to neighbours; sec. 5.1 of the paper (alpha)
APART = 0.75  # of the nearest ratio on the other side, which SEVERAL images have to keep
SEVERAL = 3


@dataclass(frozen=True, kw_only=True)
class Copies:
    """For each of m members and o others, the generated image that comes nearest to a copy of it."""

    members: Floats  # [m], ratios: 1 for what is no nearer than its neighbours, 0 for an exact copy
    others: Floats  # [o]
    copy: NDArray[np.int64]  # [m], which of the generated images
    nearest_other: NDArray[np.int64]  # [m], the one of the others that is nearest to that


def copies(made: Floats, m: Matched, neighbours: int, batch: int = 500) -> Copies:
    """Ratios of members and others alike, from the images `made` [g, C, H, W].

    The ratio of x is the least over g of ||g - x|| / mean of ||g - y||, with y the `neighbours` images
    nearest to g of all members and others but x.
    """
    n, x = len(m.members), np.concatenate([m.members.x, m.others.x])
    k = min(neighbours, len(x) - 1)
    least, which = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    for i in range(0, len(made), batch):
        away = distances(made[i : i + batch], x)
        some = np.partition(away, k, axis=1)[:, : k + 1]  # one more than queried, for those that are x
        furthest = some.max(1, keepdims=True)
        all_of = some.sum(1, keepdims=True)
        mean = np.where(away <= furthest, all_of - away, all_of - furthest) / k
        ratio = away / np.maximum(mean, 1e-12)
        best, rows = ratio.argmin(0), np.arange(len(x))
        found = exact(made[i + best], x) / np.maximum(mean[best, rows], 1e-12)  # 0 for a copy
        better = found < least
        least[better], which[better] = found[better], i + best[better]
    copy = which[:n]
    nearest_other = distances(made[copy], m.others.x).argmin(1)
    return Copies(members=least[:n], others=least[n:], copy=copy, nearest_other=nearest_other)


def drawn_again(found: Copies) -> Present:
    """Does this generator draw training images again, and does it images of nobody's?

    One image is drawn again that is ten times nearer than any of the other side, and so are SEVERAL that are all
    nearer than APART of it: by chance one plain image may lie near to what is made, and hardly three before all
    others, of which there are as many at least. What is no COPY is none.
    """

    def is_near(some: Floats, least: float) -> bool:
        few = np.sort(some)[:SEVERAL]
        several = len(few) == SEVERAL and few[-1] < min(COPY, APART * least)
        return bool(several or find_present(few[0], least, COPY).member)

    members, others = float(found.members.min()), float(found.others.min())
    return Present(is_near(found.members, others), is_near(found.others, members))


def find_drawn(found: Copies) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which members [m] are drawn far nearer than all others, and which of the others [o] than all the rest of
    them.
    """
    lowest, second = np.sort(found.others)[:2]
    beside = np.where(found.others == lowest, second, lowest)  # of each, the nearest of the rest
    return found.members < np.minimum(COPY, APART * lowest), found.others < np.minimum(COPY, APART * beside)


@dataclass(frozen=True)
class Closest:
    """Distances to the closest of two sets, as found and then with the sets mixed by chance, [1 + mixings]."""

    share: Floats  # of generated images that are nearer to the first lot
    ratio: Floats  # mean logarithm of the distance to the first by that to the second


def closest(made: Floats, first: Floats, second: Floats, rng: np.random.Generator) -> Closest:
    """Images made [g, ...] against two sets [n, ...] whose i-th images are alike (of one class).

    Where one image is the nearest of all that is made, a share of 100 % tells of that image alone. How
    far chance goes is therefore seen by exchanging i-th images of the sets at random, which changes
    nothing unless the sets differ: a permutation test, exact for any generator.
    """
    to = [distances(made, x) for x in (first, second)]
    shares, ratios = [], []
    for mixing in range(1 + _MIXINGS):
        swap = rng.random(len(first)) < (0.5 if mixing else 0.0)
        near = [np.maximum(np.where(swap, b, a).min(1), 1e-3) for a, b in (to, to[::-1])]
        shares.append(((near[0] < near[1]) + 0.5 * (near[0] == near[1])).mean())
        ratios.append(np.log(near[0] / near[1]).mean())
    return Closest(np.array(shares), np.array(ratios))
