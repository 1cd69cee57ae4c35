"""Min-max and min-sum: how far colluding clients can go in a direction without being further out than the honest.

In closed form. h_i are the honest changes, mu their mean, dev the direction, a = ||dev||^2:

    min-max: the least over i of the positive root of
             a g^2 + 2 g dev.(mu - h_i) + ||mu - h_i||^2 - max_ij ||h_i - h_j||^2
    min-sum: sqrt((S - sum_i ||h_i - mu||^2) / (h a)),   S = max_i sum_j ||h_i - h_j||^2

The public code searches by halving from 10 until 1e-5 and cannot exceed 20.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.threats.adversary import Card

PLUGINS = ("min_max", "min_sum")

Direction = Literal["sd", "unit", "sign"]


class Deviating(Colluding):
    """Sends mean + times * gamma * direction; subclasses write gamma()."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        direction: Annotated[
            Direction,
            Field(
                description="away by the honest deviations, against the mean at length one, or against its signs"
            ),
        ] = "sd"
        times: Annotated[Amount, Field(description="how many times as far as what stays hidden")] = 1.0

    def gamma(self, crowd: Crowd, dev: Tensor) -> float:
        raise NotImplementedError

    def forge(self, crowd: Crowd) -> Forge:
        dev = direction(crowd, self.config.direction)
        forged = crowd.mean + self.config.times * self.gamma(crowd, dev) * dev
        return lambda _: forged


def direction(crowd: Crowd, name: Direction) -> Tensor:
    """[P]"""
    if name == "sd":
        return -crowd.deviation
    if name == "sign":
        return -crowd.mean.sign()
    against: Tensor = -crowd.mean / crowd.mean.norm().clamp(min=1e-300)
    return against


def solve_min_max(honest: Tensor, distances: Tensor, dev: Tensor) -> float:
    """honest [h, P], their squared distances [h, h], dev [P] -> gamma; 0 where there is no direction."""
    mean, a = honest.mean(0), float(dev.square().sum())
    if not a:
        return 0.0
    gaps = mean - honest
    b, c = gaps @ dev, gaps.square().sum(1)
    roots = (-b + (b.square() - a * (c - float(distances.max()))).clamp(min=0).sqrt()) / a
    return float(roots.min())


def solve_min_sum(honest: Tensor, distances: Tensor, dev: Tensor, bound: str = "max") -> float:
    """The same; `bound` "min" takes the least sum, as the authors' notebooks do."""
    a, sums = float(dev.square().sum()), distances.sum(1)
    if not a:
        return 0.0
    most = float(sums.max() if bound == "max" else sums.min())
    spread = float((honest - honest.mean(0)).square().sum())
    return float(max(0.0, (most - spread) / (len(honest) * a)) ** 0.5)


class MinMax(Deviating):
    """Min-max: compromised clients go as far from the honest mean as two honest clients are from each other.

    Shejwalkar, Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
    Federated Learning. NDSS 2021, eq. 10: the largest distance of the forged change to an honest one is that
    between the two honest ones furthest apart. The factor is computed, not searched for.
    """

    card = Card(
        title="Min-max",
        source="NDSS 2021, eq. 10",
        does="pulls the model away as far as the spread of the honest clients hides it",
        remedy="use nnm before a robust rule; where clients hold alike data the spread leaves little room",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    def gamma(self, crowd: Crowd, dev: Tensor) -> float:
        return solve_min_max(crowd.honest, crowd.distances, dev)


class MinSum(Deviating):
    """Min-sum: as min-max, bounded by the sum of squared distances to all honest clients.

    Shejwalkar, Houmansadr. NDSS 2021, eq. 11. The bound is the largest such sum of an honest client, as in
    the paper; the authors' notebooks take the smallest (`bound: min`), which is much weaker.
    """

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
        return solve_min_sum(crowd.honest, crowd.distances, dev, self.config.bound)
