"""A little is enough: compromised clients send the mean less as many deviations as still look honest.

Baruch, Baruch, Goldberg. A Little Is Enough: Circumventing Defenses For Distributed Learning. NeurIPS 2019.
arXiv:1902.06156, Algorithm 3:

    sent = mean - z * deviation (n - 1),   z = Phi^-1((n - m - s) / (n - m)),   s = floor(n / 2 + 1) - m

of n heard and m malicious: s honest clients further out than the forged ones make a majority with them. z(25, 5)
= .253, z(20, 4) = .157, z(50, 24) = 1.426; z(10, 2) = 0: by its own formula it then sends the mean alone,
so give a `z`. ByzFL adds z deviations where the paper takes them away.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

from pydantic import Field

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge
from fedaudit.fl.threats.adversary import Card


class ALIE(Colluding):
    card = Card(
        title="A little is enough",
        source="arXiv:1902.06156, Alg. 3",
        does="moves every weight a little, the same way, without standing out",
        remedy="use nnm or bucketing before a robust rule, and momentum on the clients",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        z: Annotated[
            float | None,
            Field(ge=-100, le=100, description="deviations from the mean; null is the paper's formula"),
        ] = None

    def forge(self, crowd: Crowd) -> Forge:
        z = deviations(crowd.heard, crowd.malicious) if self.config.z is None else self.config.z
        forged = crowd.mean - z * crowd.deviation
        return lambda _: forged


def deviations(n: int, m: int) -> float:
    """z of n heard, m malicious. A majority needs nobody further out: one honest client is left there."""
    honest = n - m
    support = max(1, n // 2 + 1 - m)
    return NormalDist().inv_cdf((honest - support) / honest) if honest > support else 0.0
