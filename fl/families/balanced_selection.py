"""Class counts evened out: within a client by duplicates, over clients by choice (Seol & Kim).

Pure arithmetic on class counts, int64 [C]; fl/methods/seol_kim.py says where it departs from the print.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def oversample_counts(
    counts: Counts, decay: float, round: int, rule: Literal["target", "amount"] = "target"
) -> Counts:
    """Counts after oversampling; empty classes stay empty and nothing is removed.

    "target" raises small classes to mean * exp(-decay * round), "amount" closes that share of their
    gap to the mean.
    """
    mean, left = counts.sum() / len(counts), np.exp(-decay * round)
    if rule == "target":
        raised = np.maximum(counts, np.ceil(mean * left))
    else:
        raised = counts + np.ceil(np.maximum(mean - counts, 0) * left)
    return np.where(counts > 0, raised, 0).astype(np.int64)


def divergence(counts: Counts) -> float:
    """Kullback-Leibler divergence of the class shares from uniform, in nats; infinite without any."""
    if not counts.sum():
        return float("inf")
    shares = counts[counts > 0] / counts.sum()
    return float((shares * np.log(shares * len(counts))).sum())


def allocate(
    volumes: Mapping[int, Counts], most: int, threshold: float, rng: np.random.Generator, printed: bool = False
) -> dict[int, Counts]:
    """What each selected client trains on, in the order of selection; at most `most` clients.

    No class ever exceeds the largest count of the first client, the largest one. `printed` counts a
    client's data first and hands out what room is then left, which can be nothing.
    """
    clients = [k for k in volumes if volumes[k].sum() > 0]
    ties = rng.permutation(len(clients))
    order = sorted(range(len(clients)), key=lambda i: (-int(volumes[clients[i]].sum()), ties[i]))
    if not order:
        return {}
    first, *waiting = (clients[i] for i in order)
    total = volumes[first].copy()
    given, room = {first: total.copy()}, total.max()
    holders = [deque(k for k in waiting if volumes[k][label] > 0) for label in range(len(total))]
    while len(given) < most and divergence(total) >= threshold:
        chosen = _choose_next(holders, given, volumes, room - total)
        if chosen is None:
            break
        share = np.minimum(room - total, volumes[chosen])
        total = total + share
        given[chosen] = np.minimum(room - total, volumes[chosen]) if printed else share
    return given


def _choose_next(
    holders: Sequence[deque[int]], given: Mapping[int, Counts], volumes: Mapping[int, Counts], room: Counts
) -> int | None:
    """The first client with the class of which there is most room, and with something to add.

    Whoever was chosen or has nothing to add leaves `holders` for good, since the room only shrinks: in all rounds
    together each is looked at once a class.
    """
    for label in np.argsort(-room, kind="stable"):
        waiting = holders[label]
        while waiting:
            k: int = waiting[0]
            if k not in given and np.minimum(room, volumes[k]).sum() > 0:
                return k
            waiting.popleft()
    return None
