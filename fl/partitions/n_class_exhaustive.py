"""N-class, exhaustive: the whole set is split evenly, N classes a client (P-NE).

ReBaFL's scalability runs: 100, 200 or 500 clients of |D|/m examples. Built by the assignment of
fl/partitions/balanced_shards.py, with every class having equally many holders: clients times N must
be a multiple of the number of classes. Sizes are as equal as the classes are.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import by_shares
from fedaudit.fl.partitions.balanced_shards import assign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne


class NClassExhaustive(Partition):
    title = "N-class, exhaustive"
    source = "ReBaFL"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        classes_per_client: Annotated[AtLeastOne, Field(description="N: classes that every client holds")] = 2

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        each = self.config.classes_per_client
        if clients * each % classes:
            raise UserError(
                f"partition.classes_per_client: {clients} clients x {each} classes is not a multiple "
                f"of {classes}, so the set cannot be split evenly",
                hint="change the number of clients, or use balanced_shards",
            )
        return by_shares(labels, assign(classes, clients, each, rng).astype(np.float64), rng)

    def describe(self) -> str:
        return (
            "the whole set is split evenly, each client holding "
            f"{self.config.classes_per_client} classes (n_class_exhaustive)"
        )
