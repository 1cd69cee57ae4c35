"""Whether what clients sent is what their code makes of images of the same class, or of any other as well."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

PERMUTATIONS, MATCHES = 199, 0.05  # of classes, to tell whether prototypes match plays of their own class


@dataclass(frozen=True)
class Match:
    """Prototypes [k, D] and what plays of the same classes give, [k, D]."""

    sent: Floats
    expected: Floats
    variance: Floats  # [D]

    def count(self, rng: np.random.Generator) -> tuple[float, Floats]:
        """Log distance to plays of the own classes, and to those of permuted ones."""
        rows = self.sent
        orders = [rng.permutation(len(rows)) for _ in range(PERMUTATIONS)]
        return self._measure_distance(rows, np.arange(len(rows))), np.array(
            [self._measure_distance(rows, o) for o in orders]
        )

    def _measure_distance(self, rows: Floats, order: NDArray[np.int64]) -> float:
        expected = self.expected[order]
        factor = (rows * expected / self.variance).sum() / max((expected**2 / self.variance).sum(), 1e-24)
        left = rows - factor * expected
        if len(rows) > 2:
            left = left - left.mean(0)
        return float(np.log((left**2 / self.variance).mean() + 1e-24))


@dataclass(frozen=True)
class MatchTrial:
    """Whether one client's prototypes are those of their classes, and what plays in their place would be."""

    sent: Match
    again: Match
    bare: Callable[[], Match]  # without the protections and their noise


def is_unread(trials: Sequence[MatchTrial]) -> bool:
    """Whether what was sent matches plays of its own class no better than of others, though plays do.

    Where noise of a protection is all that hides the class, plays match as little, but do without the protection.
    """
    if math.prod(math.factorial(len(t.sent.sent)) for t in trials) * MATCHES < 2:
        return False  # of too few classes nothing can be told
    if _matches([t.sent for t in trials]):
        return False
    return _matches([t.again for t in trials]) or not _matches([t.bare() for t in trials])


def _matches(tests: Sequence[Match]) -> bool:
    rng = np.random.default_rng(0)
    own, others = zip(*(t.count(rng) for t in tests), strict=True)
    worse = (np.sum(others, axis=0) <= np.sum(own)).sum()
    return bool((1 + worse) / (1 + PERMUTATIONS) <= MATCHES)
