"""Shards: classes are cut into equal pieces and every client draws a few (P-S).

FedRS (KDD 2021), scenes such as C10-100-5: 500 shards of 100, 5 a client; after McMahan et al. 2017.
Each class is cut into K*N/C shards, and N shards a client are drawn without replacement. A client can
draw two shards of one class, so it holds N classes at most.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import collect, pools
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne


class Shards(Partition):
    title = "Shards"
    source = "FedRS, KDD 2021; after arXiv:1602.05629"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        shards_per_client: Annotated[
            AtLeastOne, Field(description="N: pieces of one class that every client draws")
        ] = 2

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        each = self.config.shards_per_client
        cuts, rest = divmod(clients * each, classes)
        if rest:
            raise UserError(
                f"partition.shards_per_client: {clients} clients x {each} shards is not a multiple "
                f"of {classes} classes, so no class can be cut into equal shards",
                hint=f"{classes} shards a client always fit; so does any number with a multiple of "
                f"{classes // np.gcd(classes, each)} clients",
            )
        shards = [s for pool in pools(labels, classes, rng) for s in np.array_split(pool, cuts)]
        order = rng.permutation(len(shards)).reshape(clients, each)
        return collect([[shards[i] for i in mine] for mine in order])

    def describe(self) -> str:
        n = self.config.shards_per_client
        return f"each client draws {n} single-class shards at random (shards, N={n})"
