"""What a client can see of a tampered model, from nothing but the weights it receives.

Models that fish for images look like no trained one. Either the rows of a dense layer all point the same way, so
that only their biases, laid out as a ramp, decide which row an image reaches (Fowl et al., arXiv:2110.13057); or
the negative weights of its rows outweigh the positive ones, so that few images reach a row at all (Boenisch et
al., arXiv:2112.02918). A server that knows this test can stay under it at the price of fewer images.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 8  # a layer of fewer rows or columns is not judged
ALIKE = 0.99  # cosine of two rows that count as one
SHARE = 0.5  # of a layer's rows that are alike: flagged
IMBALANCE = 1.0  # |log| of negative over positive weight of the middle row: flagged
MOST = 2000  # rows of a layer that are compared


def flags(weights: Mapping[str, NDArray[Any]]) -> list[str]:
    """Sentences about layers that no honest training makes; empty for a model that looks like one."""
    found = []
    for name, values in sorted(weights.items()):
        rows = np.asarray(values, np.float64)
        if rows.ndim != 2 or min(rows.shape) < ROWS:
            continue
        if (share := measure_parallel_share(rows)) >= SHARE:
            bias = np.asarray(weights.get(name.removesuffix("weight") + "bias", np.zeros(0)))
            ramp = ", with a ramp of biases" if len(np.unique(bias)) > SHARE * len(rows) else ""
            found.append(f"{share:.0%} of the rows of {name} point the same way{ramp}")
        elif (lean := imbalance(rows)) >= IMBALANCE:
            found.append(f"negative and positive weights of {name} differ by a factor of {np.exp(lean):.1f}")
    return found


def measure_parallel_share(rows: NDArray[np.float64]) -> float:
    """The share of rows [R, D] that another one is parallel to."""
    lengths = np.linalg.norm(rows, axis=1)
    unit = (rows[lengths > 0] / lengths[lengths > 0, None])[:MOST]
    if len(unit) < 2 or rows.shape[1] < 2:
        return 0.0
    cosines = np.abs(unit @ unit.T)
    np.fill_diagonal(cosines, 0)
    return float((cosines.max(axis=1) > ALIKE).sum() / len(rows[:MOST]))


def imbalance(rows: NDArray[np.float64]) -> float:
    """|log| of the sum of negative over that of positive weights, of the middle row of [R, D]."""
    negative, positive = -np.minimum(rows, 0).sum(axis=1), np.maximum(rows, 0).sum(axis=1)
    some = (negative > 0) | (positive > 0)
    if not some.any():
        return 0.0
    tiny = 1e-12 + 1e-6 * (negative + positive)[some]
    return float(abs(np.median(np.log((negative[some] + tiny) / (positive[some] + tiny)))))
