"""Local model poisoning: colluding clients push against the model's direction, as far as the rule lets them.

Fang, Cao, Jia, Gong. Local Model Poisoning Attacks to Byzantine-Robust Federated Learning. USENIX Security 2020.
arXiv:1911.11815, with full knowledge of what the others send. s is the sign of what the round
would have done to each weight, of n heard and m malicious; models count as their changes.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge, measure
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.threats.adversary import Card

PLUGINS = ("fang_krum", "fang_trimmed_mean")

SMALLEST = 1e-5  # of lambda; below it the search ends


class FangKrum(Colluding):
    """Fang's attack on Krum: the longest step against the model's direction that Krum still chooses.

    USENIX Security 2020, sec. 4.2 (eqs. 3 to 6): sent = -lambda s, by all, with s the sign of the upload that
    Krum would have chosen. lambda begins at

        sqrt(least_i sum_{j near i} ||h_i - h_j||^2 / ((n - 2m - 1) P)) + most_i ||h_i|| / sqrt(P)

    with the n - m - 2 honest uploads j nearest to each honest i, and is halved until Krum takes the forged one,
    or it is below 1e-5. Changed: all send the same, where the paper lets those after the first differ by at most
    epsilon.
    """

    card = Card(
        title="Fang's attack on Krum",
        source="arXiv:1911.11815, sec. 4.2",
        does="has Krum choose an update that turns the model's direction round",
        remedy="do not let one update decide: use nnm before a rule that averages, or trimmed_mean",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        f: Annotated[
            AtLeastZero | None,
            Field(description="what Krum is taken to assume; null is the number of the malicious"),
        ] = None

    def forge(self, crowd: Crowd) -> Forge:
        f = crowd.malicious if self.config.f is None else self.config.f
        before = crowd.honest_updates
        against = -before[choose_by_krum(measure(before), f)].sign()
        forged = find_step(crowd.honest, crowd.distances, against, crowd.malicious, f) * against
        return lambda _: forged


def choose_by_krum(distances: Tensor, f: int) -> int:
    """The upload with the lowest score of Krum, by squared distances [n, n]; at least one is summed."""
    far = distances.clone().fill_diagonal_(torch.inf).sort(1).values
    return int(far[:, : max(1, len(far) - f - 2)].sum(1).argmin())


def find_step(honest: Tensor, distances: Tensor, against: Tensor, m: int, f: int) -> float:
    """The largest lambda with which Krum takes lambda * against [P], of m beside honest [h, P].

    `distances` [h, h] are squared, of the honest. Those to what is forged are inner products, so that no step
    of the search looks at all weights again.
    """
    n, size = len(honest) + m, honest.shape[1]
    others = distances.clone().fill_diagonal_(torch.inf).sort(1).values[:, : max(1, n - m - 2)]
    along, squares, length = honest @ against, honest.square().sum(1), float(against.square().sum())
    everyone = torch.zeros(n, n, dtype=torch.float64)
    everyone[m:, m:] = distances
    nearest = float(torch.where(others.isfinite(), others, 0.0).sum(1).min())
    step = sqrt(nearest / (max(1, n - 2 * m - 1) * size)) + float(honest.norm(dim=1).max()) / sqrt(size)
    while step >= SMALLEST:
        across = (squares - 2 * step * along + step**2 * length).clamp(min=0)
        everyone[m:, :m], everyone[:m, m:] = across[:, None], across
        if choose_by_krum(everyone, f) < m:
            return step
        step /= 2
    return step


class FangTrimmedMean(Colluding):
    """Fang's attack on the trimmed mean: each weight is sent a little beyond the most extreme honest value.

    USENIX Security 2020, sec. 4.3: where s is 1 the malicious send less than the least honest value, where it is
    -1 more than the largest, drawn evenly from between it and b times it (a b-th of it, on the other side of 0).
    Also against the median. s is the sign of the mean of all that would have been sent.
    """

    card = Card(
        title="Fang's attack on the trimmed mean",
        source="arXiv:1911.11815, sec. 4.3",
        does="moves every weight against the model's direction by values that are trimmed in part only",
        remedy="use nnm or bucketing before a robust rule, and assume more malicious clients than are likely",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config):
        b: Annotated[float, Field(gt=1, le=1e6, description="how far beyond the honest values, as a factor")] = (
            2.0
        )

    def forge(self, crowd: Crowd) -> Forge:
        ends = extreme_range(crowd.honest, crowd.honest_updates.mean(0).sign(), self.config.b)

        def forge(client: int) -> Tensor:  # noqa: ARG001
            drawn = torch.rand(len(ends[0]), generator=crowd.meeting.rng, dtype=torch.float64)
            return ends[0] + (ends[1] - ends[0]) * drawn

        return forge


def extreme_range(honest: Tensor, signs: Tensor, b: float) -> tuple[Tensor, Tensor]:
    """[h, P], [P] -> two ends [P] of what is sent: the most extreme honest value against s, and beyond it."""
    least, most = honest.min(0).values, honest.max(0).values
    low = torch.where(least > 0, least / b, least * b)
    high = torch.where(most > 0, most * b, most / b)
    return torch.where(signs > 0, least, most), torch.where(signs > 0, low, high)
