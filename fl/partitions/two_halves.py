"""Two halves: client 0 holds the first half of the classes, client 1 the second (P-2).

FedRS's visualisation: classes 0 to 4 against 5 to 9.
"""

import numpy as np

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.errors import UserError


class TwoHalves(Partition):
    title = "Two halves"
    source = "FedRS, KDD 2021"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        if clients != 2 or labels.classes < 2:
            raise UserError(
                f"partition two_halves is for 2 clients and at least 2 classes, "
                f"got {clients} and {labels.classes}",
                hint="set federation.clients: 2",
            )
        first = labels.y < labels.classes // 2
        return [np.flatnonzero(first), np.flatnonzero(~first)]

    def describe(self) -> str:
        return "client 0 holds the first half of the classes, client 1 the second (two_halves)"
