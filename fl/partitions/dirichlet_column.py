"""Dirichlet, column-normalised: clients draw class proportions, classes are then used up (P-DC).

From FedRS's public code. q_k ~ Dir_C(alpha) for each client; each class's column is divided by its
sum over the clients and multiplied by the size of the class. Unlike in
fl/partitions/dirichlet_client.py every example is used and sizes vary.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import by_shares
from fedaudit.fl.runtime.ranges import Positive


class DirichletColumn(Partition):
    title = "Dirichlet over classes, column-normalised"
    source = "FedRS, KDD 2021, public code"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        alpha: Annotated[Positive, Field(description="concentration of each class; small is more skewed")] = 0.5

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        shares = rng.dirichlet(np.full(classes, self.config.alpha), size=clients)
        for c in np.flatnonzero(shares.sum(axis=0) == 0):  # alpha near 0: nobody drew this class
            shares[rng.integers(clients), c] = 1
        return by_shares(labels, shares, rng)

    def describe(self) -> str:
        return (
            "clients draw Dirichlet class proportions, and each class is dealt out in proportion to "
            f"them (dirichlet_column, alpha={self.config.alpha:g})"
        )
