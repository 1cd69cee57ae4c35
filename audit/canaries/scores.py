"""What the games are scored on: one number a canary, and whether it was really in.

Choices (a threshold, how many canaries to guess on) are made before, or on other canaries than those
they are scored on. Choosing them on the same ones makes a 95 % bound positive in 19 % of runs of a
mechanism that leaks nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.errors import UserError

Floats = NDArray[np.float64]
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # of the canaries, guessed on


@dataclass(frozen=True, kw_only=True)
class Errors:
    """A threshold's mistakes."""

    false_positives: int
    false_negatives: int
    inside: int  # how many were in
    outside: int


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """One run with `canaries` coins: `right` of the `made` guesses; on the others none was made."""

    canaries: int
    made: int
    right: int


@dataclass(frozen=True)
class Scored:
    """Scores [m], larger means in; `inside` [m] bool, independent fair coins."""

    score: Floats
    inside: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.score.shape != self.inside.shape or self.score.ndim != 1:
            raise UserError(
                f"a game needs one score a canary, got {self.score.shape} and {self.inside.shape}",
                hint="pass two arrays of the same length",
            )
        if not np.isfinite(self.score).all():
            raise UserError("a canary's score is not finite", hint="look at what was released")

    def __len__(self) -> int:
        return len(self.score)

    def take(self, index: NDArray[Any]) -> "Scored":
        return Scored(self.score[index], self.inside[index])

    def errors(self, threshold: float) -> Errors:
        """Mistakes of "in where the score is above the threshold"; chosen before looking."""
        above, n = self.score > threshold, int(self.inside.sum())
        return Errors(
            false_positives=int((above & ~self.inside).sum()),
            false_negatives=int((~above & self.inside).sum()),
            inside=n,
            outside=len(self) - n,
        )

    def guesses(self, share: float) -> Guesses:
        """The highest scores guessed in and the lowest out, half each; ties in the order given."""
        half = max(1, round(share * len(self) / 2))
        order = np.argsort(self.score, kind="stable")
        low, high = order[:half], order[len(order) - half :]
        right = int((~self.inside[low]).sum() + self.inside[high].sum())
        return Guesses(canaries=len(self), made=2 * half, right=right)


def split_guesses(scored: Scored, value: Callable[[Guesses], float], rng: np.random.Generator) -> Guesses:
    """Guesses on one half of the canaries, by the share that did best on the other half."""
    if len(scored) < 8:
        raise UserError(f"{len(scored)} canaries are too few to choose a share on half", hint="use at least 8")
    order = rng.permutation(len(scored))
    chosen, kept = (scored.take(part) for part in np.array_split(order, 2))
    best = max(SHARES, key=lambda share: value(chosen.guesses(share)))
    return kept.guesses(best)
