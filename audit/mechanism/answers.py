"""What was asked of a mechanism, and what it answered."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.fl.runtime.errors import UserError

Neighbours = Literal["remove", "replace"]
LEVEL = 1e-5  # chance that the comparisons of one family accuse a mechanism that is right
# there are 12 families, so that all sentences together do so in fewer than 1 of 5,000


class Outcome(StrEnum):
    """What may be said of a mechanism. There is no word for a right one."""

    REFUTED = "refuted"
    NOTHING = "no counterexample"
    UNTOLD = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one question found.

    `outcome` is None for a note. `numbers` are those that the sentence rests on.
    """

    question: int  # 1 to 7
    outcome: Outcome | None
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


def refute(question: int, sentence: str, **numbers: float) -> Answer:
    return Answer(question=question, outcome=Outcome.REFUTED, sentence=sentence, numbers=numbers)


def find_nothing(question: int, sentence: str, **numbers: float) -> Answer:
    return Answer(question=question, outcome=Outcome.NOTHING, sentence=sentence, numbers=numbers)


def tell_nothing(question: int, sentence: str, **numbers: float) -> Answer:
    return Answer(question=question, outcome=Outcome.UNTOLD, sentence=sentence, numbers=numbers)


def note(question: int, sentence: str, **numbers: float) -> Answer:
    return Answer(question=question, outcome=None, sentence=sentence, numbers=numbers)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What is claimed of a mechanism: (epsilon, delta) over `rounds` calls, for updates clipped to `clip`."""

    clip: float
    epsilon: float
    delta: float
    neighbours: Neighbours
    rounds: int

    def __post_init__(self) -> None:
        for name in ("clip", "epsilon"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name} must be a number above 0, got {value!r}", hint="state what is claimed")
        if not 0 <= self.delta < 1:
            raise UserError(f"delta must be at least 0 and below 1, got {self.delta!r}", hint="use 1e-5")
        if self.neighbours not in ("remove", "replace"):
            raise UserError(f"neighbours are remove or replace, got {self.neighbours!r}", hint="use remove")
        if self.rounds < 1:
            raise UserError(
                f"rounds must be at least 1, got {self.rounds}", hint="how often one filter is called"
            )

    def describe(self) -> str:
        """In one line."""
        other = "any other is in its place" if self.neighbours == "replace" else "it is removed"
        calls = "one call" if self.rounds == 1 else f"{self.rounds:,} calls together"
        return (
            f"epsilon {self.epsilon:g} at delta {self.delta:g} for {calls}, an update clipped to {self.clip:g}, "
            f"where {other}"
        )

    @property
    def farthest(self) -> float:
        """How far a clipped update may move what is sent."""
        return self.clip * (2 if self.neighbours == "replace" else 1)

    @cached_property
    def most_mu(self) -> float:
        """Move over standard deviation that the claim allows one call of Gaussian noise."""
        if not self.delta:
            return 0.0
        from dp_accounting import get_sigma_gaussian  # slow to import

        return 1 / float(get_sigma_gaussian(self.epsilon, self.delta)) / math.sqrt(self.rounds)

    def cost(self, mu: float) -> float:
        """epsilon of all calls of Gaussian noise at that move over standard deviation."""
        return gaussian(mu * math.sqrt(self.rounds), self.delta)
