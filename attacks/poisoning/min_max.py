"""Min-max: compromised clients go as far from the honest mean as two honest clients are from each other.

Shejwalkar, Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning. NDSS 2021, eq. 10: the largest distance of the forged change to an honest one is that between the two
honest ones furthest apart. The factor is computed, not searched for (attacks/poisoning/_deviations.py).
"""

from torch import Tensor

from fedaudit.attacks.poisoning import _deviations
from fedaudit.attacks.poisoning._crowd import Crowd
from fedaudit.attacks.poisoning._deviations import Deviating
from fedaudit.attacks.poisoning._threat import OMNISCIENT
from fedaudit.attacks.poisoning._updates import KINDS
from fedaudit.fl.threats.adversary import Card


class MinMax(Deviating):
    card = Card(
        title="Min-max",
        source="NDSS 2021, eq. 10",
        does="pulls the model away as far as the spread of the honest clients hides it",
        remedy="use nnm before a robust rule; where clients hold alike data the spread leaves little room",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    def gamma(self, crowd: Crowd, dev: Tensor) -> float:
        return _deviations.min_max(crowd.honest, dev)
