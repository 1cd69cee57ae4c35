"""Delay: everybody is selected, and a client whose answer takes too long is dropped (V-D).

GANDALF: a random delay per task, dropped beyond the time limit T_R; rates 0.1, 0.4 and 0.7. The
paper gives neither the distribution nor T_R. We draw exponential delays whose mean is set so that
`rate` of them exceed the limit. `limit` is in units of T_R: with the 1/4 of the fault-tolerant
variant more clients are dropped: rate**limit of them.
"""

from collections.abc import Sequence
from math import log

from pydantic import Field

from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.runtime.ranges import Positive, ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Delay(Availability):
    title = "Random delays"
    source = "GANDALF"

    @settings
    class Config:
        rate: ProperShare = Field(
            default=0.1, description="share of delays above T_R; GANDALF takes 0.1, 0.4 and 0.7"
        )
        limit: Positive = Field(default=1.0, description="longest delay that is waited for, in units of T_R")

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        mean = 1 / log(1 / self.config.rate)  # P(delay > 1) = exp(-1 / mean) = rate
        rng = streams.numpy("participation", round, attempt)
        delay = rng.exponential(mean, max(candidates, default=-1) + 1)
        in_time = tuple(k for k in candidates if delay[k] <= self.config.limit)
        return Participation(tuple(candidates), in_time)

    def describe(self) -> str:
        late = self.config.rate**self.config.limit
        return f"answers are exponentially delayed and {late:.3g} of them come too late (delay)"
