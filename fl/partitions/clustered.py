"""Clustered: groups of clients that hold few, some or many classes (P-CL).

ReBaFL: 20 clients in 5 clusters of 4, whose members hold 2, 2, 3, 3 and 5 classes.
Client k is in cluster k mod 5, as in the authors' code; the classes are drawn client by client, as
in fl/partitions/n_class.py. Its companion is fl/availability/bernoulli.py, where clusters also
answer more or less often.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import CYCLED, Cycled, sizes
from fedaudit.fl.partitions.n_class import draw_classes
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings


class Clustered(Partition):
    title = "Clustered N-class"
    source = "ReBaFL"

    @settings
    class Config:
        classes_per_cluster: tuple[AtLeastOne, ...] = Field(
            default=(2, 2, 3, 3, 5),
            min_length=1,
            description="classes that a client of each cluster holds; the default is the paper's",
        )
        examples_per_client: Cycled = CYCLED

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        cycle = self.config.classes_per_cluster
        each = [cycle[k % len(cycle)] for k in range(clients)]
        wanted = sizes(self.config.examples_per_client, len(labels.y), clients)
        return draw_classes(labels.y, labels.classes, each, wanted, rng)

    def describe(self) -> str:
        cycle = self.config.classes_per_cluster
        counts = ", ".join(map(str, cycle))
        return f"clients in {len(cycle)} clusters whose members hold {counts} classes (clustered)"
