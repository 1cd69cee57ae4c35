"""Bernoulli: everybody is selected, and each client answers with probability p (V-B).

ReBaFL, p in {0.1, 0.3, 0.5}. Clients and rounds are independent. A client's draw depends on its
number only, not on who else is selected.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Bernoulli(Availability):
    title = "Bernoulli availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: Share = Field(
            default=0.5, description="probability that a client answers in a round; ReBaFL takes 0.1, 0.3 and 0.5"
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < self.config.p))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", float(self.config.p))

    def describe(self) -> str:
        return f"each client answers with probability {self.config.p:g}, independently every round"
