"""Quantity: clients hold more or less of the same mixture (P-Q).

Sizes are proportional to draws from a log-normal distribution, as in FedDyn's code
(arXiv:2111.04263), or are a Dirichlet draw, as in NIID-Bench (arXiv:2102.02079); labels are IID.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import largest_remainder
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings


class Quantity(Partition):
    title = "Unequal sizes"
    source = "FedDyn, arXiv:2111.04263; NIID-Bench, arXiv:2102.02079"
    by_group = False

    @settings
    class Config:
        law: Literal["lognormal", "dirichlet"] = Field(
            default="lognormal", description="the distribution of the clients' sizes"
        )
        sigma: float = Field(
            default=1.0,
            ge=0,
            le=10,
            description="standard deviation of the logarithm of the sizes, with law: lognormal; 0 makes "
            "them equal",
        )
        alpha: Positive = Field(
            default=0.5, description="concentration of the sizes, with law: dirichlet; small is more unequal"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        if self.config.law == "lognormal":
            shares = rng.lognormal(sigma=self.config.sigma, size=clients)
        else:
            shares = rng.dirichlet(np.full(clients, self.config.alpha))
        counts = largest_remainder(len(labels.y), shares, rng)
        return [np.sort(p) for p in np.split(rng.permutation(len(labels.y)), np.cumsum(counts)[:-1])]

    def describe(self) -> str:
        spread = (
            f"sigma={self.config.sigma:g}" if self.config.law == "lognormal" else f"alpha={self.config.alpha:g}"
        )
        return f"clients differ in size, not in what they hold (quantity, {self.config.law}, {spread})"
