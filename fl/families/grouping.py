"""Grouping of clients by their label distributions: similar ones, or complementary ones. GANDALF.

*Similar* clients train one generator: k-means on the distributions (sec. 3.2 of the paper). Its
criterion for sizes is printed as "difference below M_g"; taken as max - min <= max(1, M_g - 1), with
up to 50 random restarts, and no group empty, which k-means leaves where clients report fewer distinct
distributions than groups are wanted: a group without clients would have a generator that nobody trains.
Changed: if none is even enough, the client nearest to the centre of the smallest group moves there from
the largest, until it is.

*Complementary* clients train the user model one after the other: each group takes in, while it has
fewer than ceil(K / M_c) members, the client that brings its mix nearest to uniform,

    argmin_i KL( sum over members and i of n_k P_k / sum n_k  ||  U )

The paper prints unweighted sums; its code weights by size, as here. 1e-5 is added to every entry,
ties go to the lower number. Distributions are rows that sum to about 1; noise may make entries
negative, which then count as 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Groups = list[list[int]]
SMOOTHING = 1e-5
_RESTARTS = 50


def divergence(p: Floats, q: Floats) -> Floats:
    """KL(p || q) of the last axis in nats, each side smoothed and normalised; broadcasts."""
    p, q = (np.maximum(np.asarray(d, np.float64), 0) + SMOOTHING for d in (p, q))
    p, q = (d / d.sum(-1, keepdims=True) for d in (p, q))
    return np.asarray((p * np.log(p / q)).sum(-1))


def similar(distributions: Floats, groups: int, rng: np.random.Generator) -> Groups:
    """Rows of [K, C] in `groups` groups of like distributions, none empty; ascending, by their first member.

    One group holds everybody; as many groups as rows (or more) hold one each.
    """
    from sklearn.cluster import KMeans

    everybody = range(len(distributions))
    if groups <= 1:
        return [list(everybody)] if len(everybody) else []
    if groups >= len(everybody):
        return [[k] for k in everybody]
    spread = max(1, groups - 1)
    for _ in range(_RESTARTS):
        fitted = _fit_quietly(KMeans(groups, n_init=1, random_state=int(rng.integers(2**31))), distributions)
        found = [np.flatnonzero(fitted.labels_ == g).tolist() for g in range(groups)]
        if _is_even([len(g) for g in found], spread):
            return sorted(found)
    return sorted(_even_groups(found, distributions, fitted.cluster_centers_, spread))


def complementary(distributions: Floats, sizes: Sequence[float], groups: int) -> Groups:
    """Rows of [K, C], of clients with `sizes` examples, in groups of at most ceil(K / groups).

    There may be fewer groups than wanted: 5 clients in 4 groups are three groups, of two at most.
    """
    rows, weights = np.asarray(distributions, np.float64), np.asarray(sizes, np.float64)
    uniform, most = np.full(rows.shape[1], 1 / rows.shape[1]), -(-len(rows) // groups)
    left, found = list(range(len(rows))), []
    while left:
        members: list[int] = []
        mix = np.zeros(rows.shape[1])
        while left and len(members) < most:
            mixes = mix + weights[left, None] * rows[left]
            totals = np.maximum(mixes.sum(1, keepdims=True), 1e-12)
            chosen = left[int(np.argmin(divergence(mixes / totals, uniform)))]
            mix += weights[chosen] * rows[chosen]
            members.append(chosen)
            left.remove(chosen)
        found.append(sorted(members))
    return sorted(found)


def _fit_quietly(kmeans: "KMeans", rows: Floats) -> "KMeans":  # type: ignore[name-defined]  # noqa: F821
    """Fewer distinct rows than groups is no news: the groups are evened out afterwards."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kmeans.fit(rows)


def _is_even(sizes: Sequence[int], spread: int) -> bool:
    return min(sizes) > 0 and max(sizes) - min(sizes) <= spread


def _even_groups(groups: Groups, rows: Floats, centres: Floats, spread: int) -> Groups:
    groups = [list(g) for g in groups]
    while True:
        sizes = [len(g) for g in groups]
        large, small = int(np.argmax(sizes)), int(np.argmin(sizes))
        if _is_even(sizes, spread):
            return [sorted(g) for g in groups]
        gaps = ((rows[groups[large]] - centres[small]) ** 2).sum(1)
        groups[small].append(groups[large].pop(int(np.argmin(gaps))))
