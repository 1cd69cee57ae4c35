"""Inner product manipulation: compromised clients send the honest mean, turned round and scaled.

Xie, Koyejo, Gupta. Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation. UAI 2019.
arXiv:1903.03936, sec. 4:

    sent = -tau * mean of the honest changes

A small tau stays among the honest (evades); with tau > (n - m) / m the mean itself turns round, of n heard and m
malicious. `tau: null` is n / m + 1, which breaks the mean for certain: the planted fault of a robustness audit.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedaudit.attacks.poisoning._crowd import gathered
from fedaudit.attacks.poisoning._threat import OMNISCIENT
from fedaudit.attacks.poisoning._updates import KINDS
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Colluded, Meeting


class IPM(Adversary):
    card = Card(
        title="Inner product manipulation",
        source="arXiv:1903.03936, sec. 4",
        does="turns training round, or slows it down while staying among the honest",
        remedy="use a rule that one group cannot pull, such as median, or nnm with one behind it",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        tau: Annotated[
            Amount | None, Field(description="how many times the honest mean, turned round; null is n / m + 1")
        ] = 0.1

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gathered(meeting)
        if crowd is None:
            return Colluded(messages={})
        tau = crowd.heard / crowd.malicious + 1 if self.config.tau is None else self.config.tau
        return crowd.sent(lambda _: -tau * crowd.mean)
