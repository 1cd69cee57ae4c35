"""Leaving: some clients are away from one round to another; all others answer with probability p throughout.

Of this project: what happens to a class whose only holders leave, and how soon it is learnt again. With the
same p and seed, everybody else answers in the same rounds as under fl/availability/bernoulli.py.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.fl.availability.bernoulli import Bernoulli
from fedaudit.fl.data.participation import Participation
from fedaudit.fl.runtime.ranges import AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Leaving(Bernoulli):
    title = "Clients that leave and return"
    source = "ours"

    @settings
    class Config:
        p: Share = Field(default=1.0, description="probability that a client that is there answers")
        clients: tuple[AtLeastZero, ...] = Field(default=(), description="those that leave, by number")
        leave: AtLeastZero = Field(default=0, description="first round without them")
        back: AtLeastZero = Field(default=0, description="first round with them again")

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        found = super().draw(round, candidates, streams, attempt)
        if not self.config.leave <= round < self.config.back:
            return found
        return Participation(found.selected, tuple(k for k in found.answering if k not in self.config.clients))

    def describe(self) -> str:
        away = ", ".join(map(str, self.config.clients)) or "none"
        return (
            f"each client answers with probability {self.config.p:g}; clients {away} are away from round "
            f"{self.config.leave} to {self.config.back - 1}"
        )
