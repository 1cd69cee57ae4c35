"""Clustered: groups of clients that hold few, some or many classes (P-CL).

ReBaFL: 20 clients in 5 clusters of 4, whose members hold 2, 2, 3, 3 and 5 classes.
Client k is in cluster k mod 5, as in the authors' code; the classes are drawn client by client, as
in fl/partitions/n_class.py. Its companion is fl/availability/clustered.py, where clusters also
answer more or less often.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import UserError
from fl.partition import Index, Partition
from fl.partitions._shares import sizes
from fl.partitions.n_class import draw_classes


class Clustered(Partition):
    title = "Clustered N-class"
    source = "ReBaFL"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        classes_per_cluster: tuple[int, ...] = (2, 2, 3, 3, 5)
        examples_per_client: int | tuple[int, ...] | None = None  # list: cycled; null: equal split

        def __post_init__(self) -> None:
            if min(self.classes_per_cluster, default=0) < 1:
                raise UserError(
                    f"partition.classes_per_cluster must list numbers >= 1, got {list(self.classes_per_cluster)}",
                    hint="the paper's are [2, 2, 3, 3, 5]",
                )

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        cycle = self.config.classes_per_cluster
        each = [cycle[k % len(cycle)] for k in range(clients)]
        wanted = sizes(self.config.examples_per_client, len(labels), clients)
        return draw_classes(labels, classes, each, wanted, rng)

    def describe(self) -> str:
        cycle = self.config.classes_per_cluster
        counts = ", ".join(map(str, cycle))
        return f"clients in {len(cycle)} clusters whose members hold {counts} classes (clustered)"
