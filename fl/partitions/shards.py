"""Shards: classes are cut into pieces, and every client gets a few."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import by_shares, collect, pools
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("balanced_shards", "shards")


class Shards(Partition):
    """Shards: classes are cut into equal pieces and every client draws a few (P-S).

    FedRS (KDD 2021), scenes such as C10-100-5: 500 shards of 100, 5 a client; after McMahan et al. 2017.
    Each class is cut into K*N/C shards, and N shards a client are drawn without replacement. A client can
    draw two shards of one class, so it holds N classes at most.
    """

    title = "Shards"
    source = "FedRS, KDD 2021; after arXiv:1602.05629"

    @settings
    class Config:
        shards_per_client: AtLeastOne = Field(
            default=2, description="N: pieces of one class that every client draws"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        each = self.config.shards_per_client
        cuts, rest = divmod(clients * each, labels.classes)
        if rest:
            raise UserError(
                f"partition.shards_per_client: {clients} clients x {each} shards is not a multiple "
                f"of {labels.classes} classes, so no class can be cut into equal shards",
                hint=f"{labels.classes} shards a client always fit; so does any number with a multiple of "
                f"{labels.classes // np.gcd(labels.classes, each)} clients",
            )
        shards = [s for pool in pools(labels.y, labels.classes, rng) for s in np.array_split(pool, cuts)]
        order = rng.permutation(len(shards)).reshape(clients, each)
        return collect([[shards[i] for i in mine] for mine in order])

    def describe(self) -> str:
        n = self.config.shards_per_client
        return f"each client draws {n} single-class shards at random (shards, N={n})"


class BalancedShards(Partition):
    """Balanced shards: every client holds N classes, every class has about equally many holders (P-B).

    From FedRS's public code (KDD 2021). Random permutations of the classes are written one after the
    other and cut into runs of N, one a client; each class is then split evenly among its holders. Where
    a run crosses from one permutation into the next, classes that it already has are put later in the
    next one, so that every client has exactly N distinct classes.
    """

    title = "Balanced shards"
    source = "FedRS, KDD 2021, public code"

    @settings
    class Config:
        classes_per_client: AtLeastOne = Field(default=2, description="N: classes that every client holds")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        held = assign(labels.classes, clients, self.config.classes_per_client, rng)
        return by_shares(labels.y, held.astype(np.float64), rng)

    def describe(self) -> str:
        return (
            f"each client holds {self.config.classes_per_client} classes, every class is split "
            f"evenly among its holders (balanced_shards, N={self.config.classes_per_client})"
        )


def assign(classes: int, clients: int, each: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[clients, classes] who holds what; `each` classes a client, holders balanced over classes.

    Raises UserError where a class would have no holder, and its examples no client.
    """
    if not each <= classes <= clients * each:
        raise UserError(
            f"classes_per_client: {clients} clients of {each} classes cannot share {classes} classes",
            hint=f"use {-(-classes // clients)} to {classes} classes a client",
        )
    held = np.zeros((clients, classes), dtype=bool)
    line: list[int] = []  # what is left of the permutations written so far
    for k in range(clients):
        run, line = line[:each], line[each:]
        if len(run) < each:
            new = [int(c) for c in rng.permutation(classes)]
            fresh = [c for c in new if c not in run][: each - len(run)]
            line = [c for c in new if c not in fresh]
            run = run + fresh
        held[k, run] = True
    return held
