"""Dirichlet, class by class: each class is dealt out to the clients in random proportions (P-DA).

Hsu, Qi, Brown 2019 brought the Dirichlet to federated learning; this per-class form is the one of
MOON (arXiv:2103.16257) and FedDC (dataset condensation). For each class c

    q_c ~ Dir_K(alpha)        the shares of class c among K clients

Small alpha is more skewed; client sizes vary widely and clients may be empty. It is not the
experiment of fl/partitions/dirichlet_client.py, even at equal alpha.

Two optional rules, both on in MOON's and FedDC's code and off here: `balance` gives no more to a
client that already holds |D|/K; `min_examples` draws everything again until each client has that
many. Their code zeroes the shares of the full clients and divides by the rest, which can be 0/0; we
draw the shares of the others from their own Dirichlet, which is the same distribution.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import collect, largest_remainder, pools
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero, Positive

_TRIES = 10_000


class Dirichlet(Partition):
    title = "Dirichlet over clients"
    source = "Li, He, Song, CVPR 2021, arXiv:2103.16257; after arXiv:1909.06335"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        alpha: Annotated[
            Positive,
            Field(description="concentration over the clients, the same for every class; small is more skewed"),
        ] = 0.5
        balance: Annotated[
            bool,
            Field(
                description="whether a client that already holds |D| / K examples gets no more, as in the "
                "papers' code"
            ),
        ] = False
        min_examples: Annotated[
            AtLeastZero, Field(description="draw everything again until each client has this many examples")
        ] = 0

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        stock = pools(labels, classes, rng)
        counts = self._counts([len(p) for p in stock], clients, rng)
        pieces = [np.split(pool, np.cumsum(column)[:-1]) for pool, column in zip(stock, counts.T, strict=True)]
        return collect(list(zip(*pieces, strict=True)))

    def _counts(self, stock: list[int], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """[clients, classes] how many examples of each class a client gets."""
        least = self.config.min_examples
        if least * clients > sum(stock):
            raise UserError(
                f"partition.min_examples: {clients} clients of {least} examples need "
                f"{least * clients}, the data have {sum(stock)}",
                hint="lower min_examples, or use fewer clients",
            )
        for _ in range(_TRIES):
            counts = self._draw(stock, clients, rng)
            if counts.sum(1).min() >= least:
                return counts
        raise UserError(
            f"partition.min_examples: {_TRIES} draws with alpha {self.config.alpha:g} left some of "
            f"{clients} clients with fewer than {least} examples",
            hint="switch balance on, raise alpha, or use fewer clients",
        )

    def _draw(self, stock: list[int], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
        counts = np.zeros((clients, len(stock)), dtype=np.int64)
        for c, size in enumerate(stock):
            open_ = np.arange(clients)
            if self.config.balance:  # never empty: before the last class the mean is below |D|/K
                held = counts.sum(1)
                open_ = open_[held * clients < sum(stock)] if size else open_
            shares = rng.dirichlet(np.full(len(open_), self.config.alpha))
            counts[open_, c] = largest_remainder(size, shares, rng)
        return counts

    def describe(self) -> str:
        rules = ", sizes balanced" if self.config.balance else ""
        if self.config.min_examples:
            rules += f", at least {self.config.min_examples} examples a client"
        return (
            "each class is dealt out to the clients in Dirichlet proportions "
            f"(dirichlet, alpha={self.config.alpha:g}{rules})"
        )
