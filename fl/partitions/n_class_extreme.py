"""N-class, extreme: client i holds the n classes n*i, n*i+1, ... modulo C, and nothing else (P-n).

GANDALF, n in {1, 2, 4} (CINIC-10) and {4, 6, 8} (EMNIST), 20 clients. A class is split evenly among
its holders.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import by_shares
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne


class NClassExtreme(Partition):
    title = "N-class, extreme"
    source = "GANDALF"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        classes_per_client: Annotated[
            AtLeastOne, Field(description="n: consecutive classes that every client holds")
        ] = 2

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        return by_shares(labels, windows(classes, clients, self.config.classes_per_client).astype(float), rng)

    def describe(self) -> str:
        n = self.config.classes_per_client
        return f"client i holds classes {n}i to {n}i+{n - 1} and nothing else (n_class_extreme, n={n})"


def windows(classes: int, clients: int, each: int) -> NDArray[np.bool_]:
    """[clients, classes] True where client i's run of `each` classes is; runs follow one another.

    Raises UserError where a class would have no holder.
    """
    if not each <= classes <= clients * each:
        raise UserError(
            f"partition: {clients} clients of {each} classes cannot share {classes} classes",
            hint=f"use {-(-classes // clients)} to {classes} classes a client",
        )
    held = np.zeros((clients, classes), dtype=bool)
    for i in range(clients):
        held[i, np.arange(each * i, each * (i + 1)) % classes] = True
    return held
