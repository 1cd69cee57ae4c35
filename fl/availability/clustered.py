"""Clustered: groups of clients that answer often, sometimes or seldom (V-C).

ReBaFL: five clusters that answer with probability 0.5, 0.5, 0.3, 0.3 and 0.2; client k is in cluster
k mod 5, as in fl/partitions/clustered.py. Clients and rounds are independent.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Clustered(Availability):
    title = "Clustered availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: tuple[Share, ...] = Field(
            default=(0.5, 0.5, 0.3, 0.3, 0.2),
            min_length=1,
            description="probability that a client of each cluster answers; the default is the paper's",
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        p = self.config.p
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < p[k % len(p)]))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        p = self.config.p
        return Drawn("poisson", float(max(p) if client is None else p[client % len(p)]))

    def describe(self) -> str:
        listed = ", ".join(f"{p:g}" for p in self.config.p)
        return f"clients in {len(self.config.p)} clusters that answer with probability {listed}"
