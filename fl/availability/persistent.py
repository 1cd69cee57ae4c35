"""Persistent: clients answer at random, and who answers stays the same for s rounds (V-S).

ReBaFL, s in {2, 5, 10, 20}. The Bernoulli pattern is drawn in rounds 0, s, 2s, ... and kept in
between; s = 1 is fl/availability/bernoulli.py exactly. An empty pattern that is drawn again is
replaced for its whole period.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.fl.availability.bernoulli import Bernoulli
from fedaudit.fl.data.participation import Drawn, Participation
from fedaudit.fl.runtime.ranges import AtLeastOne, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Persistent(Bernoulli):
    title = "Persistent availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: Share = Field(default=0.5, description="probability that a client answers")
        period: AtLeastOne = Field(
            default=5, description="s: rounds for which who answers stays the same; ReBaFL takes 2, 5, 10 and 20"
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return super().draw(round - round % self.config.period, candidates, streams, attempt)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", float(self.config.p), self.config.period)

    def describe(self) -> str:
        return (
            f"each client answers with probability {self.config.p:g}; who answers is drawn anew "
            f"every {self.config.period} rounds"
        )
