"""Dirichlet, client by client: each client has random class proportions and a fixed size (P-DB).

Seol and Kim; the same form is in FedDyn's code (arXiv:2111.04263). Client k draws

    q_k ~ Dir_C(alpha)        concentration alpha for EACH of the C classes

and n_k labels from q_k. A class that is used up is drawn again from the renormalised others. alpha = 0
is the limit: one class a client, chosen uniformly (and another where that one is used up). A list of
concentrations goes round the clients: nine times 0 and then 0.2 is Seol and Kim's case 2, 180 clients of
one class and 20 of several. It is not the experiment of fl/partitions/dirichlet.py, even at equal alpha.
Clients choose in random order, so that the leftovers do not always fall to the last ones.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import collect, pools, sizes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne


class DirichletClient(Partition):
    title = "Dirichlet over classes"
    source = "Seol and Kim; FedDyn, arXiv:2111.04263"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        alpha: Annotated[
            Amount | Annotated[tuple[Amount, ...], Field(min_length=1)],
            Field(
                description="concentration of each class; small is more skewed, 0 gives each client one class; "
                "a list is repeated over the clients"
            ),
        ] = 0.5
        examples_per_client: Annotated[
            AtLeastOne | tuple[AtLeastOne, ...] | None,
            Field(
                description="examples of each client; a list is repeated over the clients, null splits all "
                "equally"
            ),
        ] = None

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        wanted = sizes(self.config.examples_per_client, len(labels), clients)
        if sum(wanted) > len(labels):
            raise UserError(
                f"partition.examples_per_client: {clients} clients want {sum(wanted)} examples, the "
                f"data have {len(labels)}",
                hint=f"use at most {len(labels) // clients}",
            )
        stock = pools(labels, classes, rng)
        concentrations = self.concentrations(np.array([len(p) for p in stock]))
        start = np.zeros(classes, dtype=np.int64)
        given: list[list[Index]] = [[] for _ in range(clients)]
        for k in rng.permutation(clients):
            left = np.array([len(p) for p in stock]) - start
            stop = start + _take(wanted[k], left, concentrations[k % len(concentrations)], rng)
            given[k] = [p[a:b] for p, a, b in zip(stock, start, stop, strict=True)]
            start = stop
        return collect(given)

    def concentrations(self, stock: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n, classes] parameters of the Dirichlet, repeated over the clients; `stock`: sizes of the classes."""
        return np.tile(np.atleast_1d(np.asarray(self.config.alpha, np.float64))[:, None], len(stock))

    def describe(self) -> str:
        alpha = np.atleast_1d(self.config.alpha)
        each = " for each class" if len(alpha) == 1 else " for each class, client by client and again"
        return (
            "each client's class proportions are a Dirichlet draw, its size is fixed "
            f"(dirichlet_client, alpha={', '.join(f'{a:g}' for a in alpha)}{each})"
        )


def _take(
    size: int, left: NDArray[np.int64], concentration: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """[classes] how many of each class one client gets, `size` in all, none beyond what is left.

    Drawing the whole missing number at once, keeping what is in stock and drawing the excess again
    from the other classes has the same distribution as label by label.
    """
    q = rng.dirichlet(concentration) if concentration.any() else np.zeros(len(left))
    taken = np.zeros(len(left), dtype=np.int64)
    while (missing := size - int(taken.sum())) > 0:
        in_stock = left > taken
        p = q * in_stock
        if p.sum() == 0:  # alpha = 0, or so small that nothing remains: one class, uniformly
            p = np.zeros(len(left))
            p[rng.choice(np.flatnonzero(in_stock))] = 1
        drawn = rng.multinomial(missing, p / p.sum())
        taken = np.minimum(taken + drawn, left)
    return taken
