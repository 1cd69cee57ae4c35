"""Rules that read labels off the last layer: which classes were trained on, and in which proportions.

`change` is what training did to the bias, or to the row sums, [C]: minus rate times the gradient.

* presence: Zhao, Mopuri, Bilen, iDLG, arXiv:2001.02610, sec. 3.1, for several labels: only classes that
  were trained on move up under a plain softmax.
* far_moved: the same for a softmax restricted or re-balanced to the client's own classes, whose rows
  alone move, some up and some down.
* LLG: Wainakh et al., User-Level Label Leakage from Gradients in Federated Learning, PoPETs 2022,
  arXiv:2105.09369, Alg. 1, on row sums.
* proportions: the bias moves by rate * steps * (q - M'q) with q the proportions and M the mean softmax
  outputs by class, here of auxiliary images. The idea of Dimitrov et al., Data Leakage in Federated
  Averaging, TMLR 2022, arXiv:2206.12395, sec. 4.3: outputs between the first and the last model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Values = NDArray[np.float64]
Counts = NDArray[np.int64]
FEW_PICKS = 10_000  # of the lowest class, one after the other
STILL = 1e-6  # of the largest change: what rounding leaves of a row that was not trained


def present(change: Values, number: int | None = None) -> NDArray[np.bool_]:
    """Which classes were trained on; the `number` that moved up most, where it is known.

    Where rows did not move at all, the loss leaves missing classes out (restricted or balanced
    softmax), and those that moved were trained on; otherwise those that moved up.
    """
    if number is not None:
        found = np.zeros(len(change), bool)
        found[np.argsort(-change, kind="stable")[:number]] = True
        return found
    size = np.abs(change)
    still = size <= STILL * size.max()
    return np.asarray(~still if still.any() and not still.all() else change > 0)


def select_far_rows(norms: Values) -> NDArray[np.bool_]:
    """The rows that moved farthest, cut at the widest gap between successive lengths, as a ratio.

    For losses that leave the rows of missing classes nearly, but not quite, alone.
    """
    order = np.argsort(-norms, kind="stable")
    lengths = np.maximum(norms[order], STILL * norms.max())
    if lengths[0] == 0:
        return np.zeros(len(norms), bool)
    found = np.zeros(len(norms), bool)
    found[order[: 1 + int((lengths[:-1] / lengths[1:]).argmax())]] = True
    return found


def llg(row_sums: Values, examples: int) -> Counts:
    """Label counts of a batch from the row sums of its mean gradient, [C] -> [C]."""
    left, counts = row_sums.astype(np.float64).copy(), np.zeros(len(row_sums), np.int64)
    negative = left < 0
    impact = left[negative].sum() / examples * (1 + 1 / len(left))
    for c in np.flatnonzero(negative)[np.argsort(left[negative], kind="stable")][:examples]:
        counts[c] += 1
        left[c] -= impact
    ahead = _count_certain(left, -impact, examples - int(counts.sum()))
    counts += ahead
    left -= impact * ahead
    while counts.sum() < examples:
        c = int(left.argmin())
        counts[c] += 1
        left[c] -= impact
    return counts


def _count_certain(left: Values, step: float, examples: int) -> Counts:
    """How often each class is the lowest for certain, of so many times that the lowest is raised by `step`; [C].

    All but the last few picks, so that the work does not grow with a number that a client states.
    """
    if step <= 0 or examples < FEW_PICKS:
        return np.zeros(len(left), np.int64)
    low = np.sort(left)
    levels = (examples * step + np.cumsum(low)) / np.arange(1, len(low) + 1)  # were the lowest m classes raised
    filled = np.flatnonzero(levels >= low)[-1]
    return np.asarray(np.maximum(0, np.floor((levels[filled] - left) / step) - 1), np.int64)


def proportions(drift: Values, outputs: Sequence[Values], rounds: int = 10) -> Values:
    """q >= 0 with sum 1 that best explains drift = q - M'q, [C] -> [C].

    `outputs` are M [C, C] of models along the way. Training is slow where there is little left to
    learn, so a model counts by the time spent near it: inversely to the gradient q - M'q there.
    """
    q = np.full(len(drift), 1 / len(drift))
    for _ in range(rounds if len(outputs) > 1 else 1):
        left = np.array([np.linalg.norm(q - m.T @ q) for m in outputs])
        time = 1 / np.maximum(left, 0.05 * left.max() or 1.0)  # nothing left anywhere: all models alike
        mean = np.tensordot(time / time.sum(), np.stack(outputs), axes=1)
        q = _simplex(np.eye(len(drift)) - mean.T, drift)
    return q


def _simplex(matrix: Values, right: Values, weight: float = 10.0) -> Values:
    """Least squares over the simplex: the sum is one more equation, of large weight."""
    system = np.vstack([matrix, np.full((1, matrix.shape[1]), weight)])
    found: NDArray[Any] = scipy.optimize.nnls(system, np.append(right, weight))[0]
    total = found.sum()
    return np.asarray(found / total if total > 0 else np.full(len(found), 1 / len(found)))
