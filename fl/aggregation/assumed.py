"""How many malicious clients a rule assumes: a number, or a share of the clients that are heard in a round."""

from math import ceil
from typing import Annotated

from pydantic import Field

from fedaudit.fl.aggregation.aggregator import RowRule
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings

Assumed = Annotated[
    AtLeastZero | Annotated[float, Field(gt=0, lt=0.5)],
    Field(description="malicious clients assumed: a number, or a share below one half of those heard"),
]


def count_attackers(f: float, heard: int) -> int:
    """The number that f stands for among `heard` clients; a share is rounded up, so that none is forgotten."""
    return int(f) if f >= 1 or f == 0 else ceil(f * heard - 1e-9)  # .1 * 30 is a little more than 3


def need_majority(f: float, heard: int) -> int:
    """The fewest uploads of which those assumed malicious are less than half."""
    return 2 * count_attackers(f, heard) + 1


class AssumingRule(RowRule):
    """A rule that assumes f of a round's clients to be malicious, and that these are less than half at most."""

    @settings
    class Config(RowRule.Config):
        f: Assumed = 1

    def needs(self, heard: int) -> int:
        return need_majority(self.config.f, heard)
