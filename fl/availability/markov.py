"""Markov: clients go on and off line, and stay so for a while (V-M). Our extension, from no paper.

A client that is on line goes off with probability `leave` before the next round, one that is off
comes back with probability `join`; round 0 has the stationary share join / (join + leave). It stays
on for 1 / leave rounds on average. With leave = 1 - join it is fl/availability/bernoulli.py with
p = join.

Nothing is remembered between calls: a round's state is worked out again from round 0, so that a
continued run and a whole one agree. Drawing an empty round again changes that round only.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Markov(Availability):
    title = "Markov availability"
    source = "ours"

    @settings
    class Config:
        join: PositiveShare = Field(
            default=0.2, description="probability per round that a client that is off comes back"
        )
        leave: PositiveShare = Field(
            default=0.2, description="probability per round that a client that is on line goes off"
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        join, leave, clients = self.config.join, self.config.leave, max(candidates, default=-1) + 1
        on = np.zeros(clients, dtype=bool)
        for t in range(round + 1):
            u = streams.numpy("participation", t, attempt if t == round else 0).random(clients)
            on = u < (np.where(on, 1 - leave, join) if t else join / (join + leave))
        return Participation(tuple(candidates), tuple(k for k in candidates if on[k]))

    def describe(self) -> str:
        share = self.config.join / (self.config.join + self.config.leave)
        return (
            f"clients go on and off line and answer while on, {share:.3g} of the time, "
            f"{1 / self.config.leave:.3g} rounds in a row on average (markov)"
        )
