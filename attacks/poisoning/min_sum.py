"""Min-sum: as min-max, bounded by the sum of squared distances to all honest clients.

Shejwalkar, Houmansadr. NDSS 2021, eq. 11. The bound is the largest such sum of an honest client, as in the paper;
the authors' notebooks take the smallest (`bound: min`), which is much weaker.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning import _deviations
from fedaudit.attacks.poisoning._crowd import Crowd
from fedaudit.attacks.poisoning._deviations import Deviating
from fedaudit.attacks.poisoning._threat import OMNISCIENT
from fedaudit.attacks.poisoning._updates import KINDS
from fedaudit.fl.threats.adversary import Card


class MinSum(Deviating):
    card = Card(
        title="Min-sum",
        source="NDSS 2021, eq. 11",
        does="pulls the model away while staying as near to all honest clients as one of them is",
        remedy="use nnm before a robust rule; where clients hold alike data the spread leaves little room",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Deviating.Config):
        bound: Annotated[
            Literal["max", "min"],
            Field(description="whose sum of distances is the bound: the largest or the least"),
        ] = "max"

    def gamma(self, crowd: Crowd, dev: Tensor) -> float:
        return _deviations.min_sum(crowd.honest, dev, self.config.bound)
