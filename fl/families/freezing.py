"""Freezing arithmetic of FreezeFL: what a layer is worth, how many to freeze, how useful a client was.

Pure functions; fl/methods/freezefl.py has the method and the sources.
"""

from collections.abc import Mapping, Sequence
from math import inf, log, sqrt, ulp

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.families.layers import Layers
from fedaudit.fl.model import State

Values = NDArray[np.float64]


def importances(
    start: State, trained: Mapping[str, Tensor], of: Layers, parameters: Sequence[str]
) -> list[float]:
    """P_l: mean absolute change of a weight of each layer, weights and biases together."""
    known = set(parameters)
    found = []
    for names in of:
        own = [k for k in names if k in known]
        moved = sum(float((trained[k].double() - start[k].double()).abs().sum()) for k in own)
        found.append(moved / sum(start[k].numel() for k in own))
    return found


def decide(importance: Sequence[float], times: Sequence[float], deadline: float, beta: float) -> int:
    """n*: how many layers to freeze, given tau_n for n = 0..L-1; ties freeze the fewest.

        argmax_n log(sum_{l > n} P_l) + beta [T < tau_n] log(T / tau_n)

    In logarithms, because (T / tau)^beta is 0 for every n once beta is large, and nothing would freeze then.
    """
    scores = []
    for n, tau in enumerate(np.minimum.accumulate(times)):  # freezing more never takes longer
        left = sum(importance[n:])
        # a deadline that nobody could keep orders the choices as a very short one does
        late = beta * (log(max(deadline, ulp(0.0))) - log(tau)) if beta and deadline < tau else 0.0
        scores.append(log(left) + late if left > 0 else -inf)
    return int(np.argmax(scores))


def utility(unfrozen: int, moved: Sequence[Tensor], together: Sequence[Tensor]) -> float:
    """U_k of one client, from the changes of its layers (flat) and of the same layers of the shared model."""
    inner = sum(
        float(a.double() @ b.double()) / a.numel() for a, b in zip(moved, together, strict=True) if a.numel()
    )
    return unfrozen * max(0.0, inner)


def restart_utilities(utilities: Values, participations: Values, period: int) -> Values:
    """The warm restart: every u moves towards their mean, by no more than what is not known of it.

    rad_k = sqrt(2 ln Phi / phi_k), infinite for those who never answered in the period.
    """
    mean = utilities.mean()
    radius = np.array([sqrt(2 * log(period) / phi) if phi else inf for phi in participations])
    below = np.minimum(mean, utilities + radius)
    moved: Values = np.where(utilities < mean, below, np.maximum(mean, utilities - radius))
    return moved


def draw_without_replacement(weights: Values, count: int, rng: np.random.Generator) -> list[int]:
    """`count` numbers one after the other without replacement, each in proportion to what is left of weights."""
    left, found = weights.astype(np.float64).copy(), list[int]()
    for _ in range(min(count, len(left))):
        total = left.sum()
        chances = (
            left / total
            if total > 0
            else np.isin(np.arange(len(left)), found, invert=True) / (len(left) - len(found))
        )
        found.append(int(rng.choice(len(left), p=chances)))
        left[found[-1]] = 0.0
    return sorted(found)
