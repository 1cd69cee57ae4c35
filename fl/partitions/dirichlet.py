"""Dirichlet partitions: proportions of classes are drawn, by class or by client."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import CYCLED, Cycled, by_shares, collect, largest_remainder, pools, sizes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, Positive
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("dirichlet", "dirichlet_client", "dirichlet_column", "dirichlet_hsu")

_TRIES = 10_000


class Dirichlet(Partition):
    """Dirichlet, class by class: each class is dealt out to the clients in random proportions (P-DA).

    Hsu, Qi, Brown 2019 brought the Dirichlet to federated learning; this per-class form is the one of
    MOON (arXiv:2103.16257) and FedDC (dataset condensation). For each class c

        q_c ~ Dir_K(alpha)        the shares of class c among K clients

    Small alpha is more skewed; client sizes vary widely and clients may be empty. It is not the
    experiment of `dirichlet_client`, even at equal alpha.

    Two optional rules, both on in MOON's and FedDC's code and off here: `balance` gives no more to a
    client that already holds |D|/K; `min_examples` draws everything again until each client has that
    many. Their code zeroes the shares of the full clients and divides by the rest, which can be 0/0; we
    draw the shares of the others from their own Dirichlet, which is the same distribution.
    """

    title = "Dirichlet over clients"
    source = "Li, He, Song, CVPR 2021, arXiv:2103.16257; after arXiv:1909.06335"

    @settings
    class Config:
        alpha: Positive = Field(
            default=0.5,
            description="concentration over the clients, the same for every class; small is more skewed",
        )
        balance: bool = Field(
            default=False,
            description="whether a client that already holds |D| / K examples gets no more, as in the "
            "papers' code",
        )
        min_examples: AtLeastZero = Field(
            default=0, description="draw everything again until each client has this many examples"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        stock = pools(labels.y, labels.classes, rng)
        counts = self._draw_counts([len(p) for p in stock], clients, rng)
        pieces = [np.split(pool, np.cumsum(column)[:-1]) for pool, column in zip(stock, counts.T, strict=True)]
        return collect(list(zip(*pieces, strict=True)))

    def _draw_counts(self, stock: list[int], clients: int, rng: np.random.Generator) -> NDArray[np.int64]:
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


class DirichletClient(Partition):
    """Dirichlet, client by client: each client has random class proportions and a fixed size (P-DB).

    Seol and Kim; the same form is in FedDyn's code (arXiv:2111.04263). Client k draws

        q_k ~ Dir_C(alpha)        concentration alpha for EACH of the C classes

    and n_k labels from q_k. A class that is used up is drawn again from the renormalised others. alpha = 0
    is the limit: one class a client, chosen uniformly (and another where that one is used up). A list of
    concentrations goes round the clients: nine times 0 and then 0.2 is Seol and Kim's case 2, 180 clients of
    one class and 20 of several. It is not the experiment of `dirichlet`, even at equal alpha.
    Clients choose in random order, so that the leftovers do not always fall to the last ones.
    """

    title = "Dirichlet over classes"
    source = "Seol and Kim; FedDyn, arXiv:2111.04263"

    @settings
    class Config:
        alpha: Amount | Annotated[tuple[Amount, ...], Field(min_length=1)] = Field(
            default=0.5,
            description="concentration of each class; small is more skewed, 0 gives each client one class; "
            "a list is repeated over the clients",
        )
        examples_per_client: Cycled = CYCLED

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        wanted = sizes(self.config.examples_per_client, len(labels.y), clients)
        if sum(wanted) > len(labels.y):
            raise UserError(
                f"partition.examples_per_client: {clients} clients want {sum(wanted)} examples, the "
                f"data have {len(labels.y)}",
                hint=f"use at most {len(labels.y) // clients}",
            )
        stock = pools(labels.y, labels.classes, rng)
        concentrations = self.concentrations(np.array([len(p) for p in stock]))
        start = np.zeros(labels.classes, dtype=np.int64)
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


class DirichletColumn(Partition):
    """Dirichlet, column-normalised: clients draw class proportions, classes are then used up (P-DC).

    From FedRS's public code. q_k ~ Dir_C(alpha) for each client; each class's column is divided by its
    sum over the clients and multiplied by the size of the class. Unlike in
    `dirichlet_client` every example is used and sizes vary.
    """

    title = "Dirichlet over classes, column-normalised"
    source = "FedRS, KDD 2021, public code"

    @settings
    class Config:
        alpha: Positive = Field(default=0.5, description="concentration of each class; small is more skewed")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        shares = rng.dirichlet(np.full(labels.classes, self.config.alpha), size=clients)
        for c in np.flatnonzero(shares.sum(axis=0) == 0):  # alpha near 0: nobody drew this class
            shares[rng.integers(clients), c] = 1
        return by_shares(labels.y, shares, rng)

    def describe(self) -> str:
        return (
            "clients draw Dirichlet class proportions, and each class is dealt out in proportion to "
            f"them (dirichlet_column, alpha={self.config.alpha:g})"
        )


class DirichletHsu(DirichletClient):
    """Dirichlet, Hsu's parametrisation: alpha is the sum over the classes, not of each one (P-DB').

    Hsu, Qi, Brown 2019, arXiv:1909.06335. Client k draws

        q_k ~ Dir(alpha * prior)        prior: the share of each class in the data, summing to one

    so that with C equal classes each has concentration alpha / C: the same alpha is C times more skewed
    than in `dirichlet_client`, which is otherwise the same.
    """

    title = "Dirichlet over classes, Hsu's parametrisation"
    source = "Hsu, Qi, Brown 2019, arXiv:1909.06335"

    @settings
    class Config:
        alpha: Amount = Field(
            default=0.5,
            description="sum of the concentrations of all classes; small is more skewed, 0 gives each "
            "client one class",
        )
        examples_per_client: Cycled = CYCLED

    def concentrations(self, stock: NDArray[np.int64]) -> NDArray[np.float64]:
        """[1, classes] alpha times the share of each class."""
        result: NDArray[np.float64] = self.config.alpha * stock[None] / max(1, stock.sum())
        return result

    def describe(self) -> str:
        return (
            "each client's class proportions are a Dirichlet draw around those of the data, its size "
            f"is fixed (dirichlet_hsu, alpha={self.config.alpha:g} in all)"
        )
