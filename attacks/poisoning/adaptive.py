"""Adaptive: compromised clients try several attacks on the very rule that the server uses, and send the worst.

Tramer, Carlini, Brendel, Madry. On Adaptive Attacks to Adversarial Example Defenses. NeurIPS 2020.
arXiv:2002.08347 (the principle); Fang et al. USENIX Security 2020. arXiv:1911.11815 (knowing the rule). In each
round, of ipm with tau, alie with z and min_max with a multiple of its gamma, each over the `grid`, the one that
moves the rule's result furthest from the honest mean. The rule's state is known, its random draws are not. A
round costs 27 aggregations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import KINDS, Crowd, gathered, shaped, vector
from fedaudit.attacks.poisoning.min_max import direction, solve_min_max
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Adversary, Card, Colluded, Meeting, Payload
from fedaudit.fl.threats.threat import Conduct, Position, ThreatModel


class Adaptive(Adversary):
    card = Card(
        title="Adaptive attacker",
        source="arXiv:2002.08347, arXiv:1911.11815",
        does="finds in every round what harms the rule in use most, and sends it",
        remedy="do not trust a rule by attacks that do not know it; bound what one client can change",
        threat=ThreatModel(
            position=Position.CLIENT, conduct=Conduct.MALICIOUS, knows=frozenset({"honest_updates", "aggregator"})
        ),
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        grid: Annotated[
            tuple[Amount, ...], Field(min_length=1, max_length=100, description="strengths that are tried")
        ] = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gathered(meeting)
        if crowd is None or meeting.aggregate is None:
            return Colluded(messages={})
        changes: dict[int, Payload] = {
            k: shaped(row, crowd.like) for k, row in zip(crowd.clients, crowd.honest, strict=True)
        }
        worst, most = crowd.mean, -1.0
        for forged in self._tries(crowd):
            all_of_them = changes | dict.fromkeys(meeting.own, shaped(forged, crowd.like))
            made = meeting.aggregate({k: all_of_them[k] for k in sorted(all_of_them)})
            moved = float((vector({k: made[k] for k in crowd.like}) - crowd.mean).norm())
            if moved > most:
                worst, most = forged, moved
        return crowd.sent(lambda _: worst)

    def _tries(self, crowd: Crowd) -> Iterator[Tensor]:
        away = direction(crowd, "sd")
        gamma = solve_min_max(crowd.honest, away)
        for strength in self.config.grid:
            yield -strength * crowd.mean
            yield crowd.mean - strength * crowd.deviation
            yield crowd.mean + strength * gamma * away
