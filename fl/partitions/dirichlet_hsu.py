"""Dirichlet, Hsu's parametrisation: alpha is the sum over the classes, not of each one (P-DB').

Hsu, Qi, Brown 2019, arXiv:1909.06335. Client k draws

    q_k ~ Dir(alpha * prior)        prior: the share of each class in the data, summing to one

so that with C equal classes each has concentration alpha / C: the same alpha is C times more skewed
than in fl/partitions/dirichlet_client.py, which is otherwise the same.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.partitions.dirichlet_client import DirichletClient
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne


class DirichletHsu(DirichletClient):
    title = "Dirichlet over classes, Hsu's parametrisation"
    source = "Hsu, Qi, Brown 2019, arXiv:1909.06335"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        alpha: Annotated[
            Amount,
            Field(
                description="sum of the concentrations of all classes; small is more skewed, 0 gives each "
                "client one class"
            ),
        ] = 0.5
        examples_per_client: Annotated[
            AtLeastOne | tuple[AtLeastOne, ...] | None,
            Field(
                description="examples of each client; a list is repeated over the clients, null splits all "
                "equally"
            ),
        ] = None

    def concentrations(self, stock: NDArray[np.int64]) -> NDArray[np.float64]:
        """[1, classes] alpha times the share of each class."""
        result: NDArray[np.float64] = self.config.alpha * stock[None] / max(1, stock.sum())
        return result

    def describe(self) -> str:
        return (
            "each client's class proportions are a Dirichlet draw around those of the data, its size "
            f"is fixed (dirichlet_hsu, alpha={self.config.alpha:g} in all)"
        )
