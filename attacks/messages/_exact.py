"""Values that stand in a message only if a person's data are in: a hash, a single loss, a copy under any mapping.

Of what a client that holds x alone sends, a value says -log2 of the share of auxiliary people of whom it is said
as well. x stands in a block where at least EXACT of what its values say is found there, at their places or
anywhere, and that is at least BITS. Numbers are compared to five digits: a batch of one and a batch of n differ
in the last bits. Anywhere in a block only values count that few others have; pixels of 17 grey levels match
everywhere, while at their places they tell people apart.
"""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
EXACT, BITS = 0.98, 7.0
LEAST = 0.1  # of the numbers of a block that must be a person's, before it is asked what they tell
CLOSE = 5e-6  # of the larger of two numbers
FEW = 1 / 16  # of auxiliary people, who may have a value that is looked for anywhere
MOST = 2**12  # numbers of a block in which values are looked for anywhere


def stands_at_places(message: Values, people: Values, auxiliary: Values) -> Mask:
    """[m] of people [m, D] in a block [D], where auxiliary people are [a, D]."""
    is_there = _is_close(people, message)
    if (
        not len(people) or is_there.mean(axis=1).max(initial=0.0) < LEAST
    ):  # auxiliary people need not be looked at
        return np.zeros(len(people), bool)
    share = _is_close(auxiliary, message).sum(axis=0)
    bits = -np.log2((share + 1) / (len(auxiliary) + 1))
    bits[np.ptp(auxiliary, axis=0) == 0] = 0.0
    total = float(bits.sum())
    if total < BITS:
        return np.zeros(len(people), bool)
    return np.asarray(is_there @ bits >= EXACT * total)


def stands_anywhere(message: Values, people: Values, auxiliary: Values) -> Mask:
    """[m] of people [m, D] among numbers [k], where auxiliary people are [a, D]."""
    if people.shape[1] > MOST or not message.size:
        return np.zeros(len(people), bool)
    there = np.sort(message.ravel())
    known, counts = _count_people(auxiliary)
    found = np.zeros(len(people), bool)
    for i, row in enumerate(people):
        values = np.unique(row)
        others = _look_up(values, known, counts)
        rare = others <= FEW * len(auxiliary)
        bits = -np.log2((others[rare] + 1) / (len(auxiliary) + 1))
        if (total := float(bits.sum())) >= BITS:
            is_there = _look_up(values[rare], there, np.ones(len(there))) > 0
            found[i] = float(bits[is_there].sum()) >= EXACT * total
    return found


def _is_close(rows: Values, row: Values) -> Mask:
    return np.asarray(np.abs(rows - row) <= CLOSE * np.maximum(np.abs(rows), np.abs(row)))


def _count_people(rows: Values) -> tuple[Values, Values]:
    """Values in rows [a, D], in order, and how many of the rows have each."""
    each = np.concatenate([np.unique(row) for row in rows]) if len(rows) else np.zeros(0)
    known, counts = np.unique(each, return_counts=True)
    return known, counts.astype(np.float64)


def _look_up(values: Values, known: Values, counts: Values) -> Values:
    """[k] the sum of counts of known values, in order, that are as good as each of these."""
    reach = CLOSE * np.abs(values)
    low, high = np.searchsorted(known, values - reach), np.searchsorted(known, values + reach, side="right")
    total = np.concatenate([[0.0], np.cumsum(counts)])
    return np.asarray(total[high] - total[low])
