"""Natural: a client is a person, as the data say: the writer or the role (P-LEAF).

LEAF (Caldas et al. 2018, arXiv:1812.01097): FEMNIST by writer, Shakespeare by role. With fewer
clients than people, that many are drawn at random and the others' examples are not used.
"""

import numpy as np

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.errors import UserError


class Natural(Partition):
    title = "Natural clients"
    source = "LEAF, arXiv:1812.01097"
    by_group = False

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        if labels.owner is None:
            raise UserError(
                "partition natural: this data set does not say whose the examples are",
                hint="femnist and shakespeare do; so does an npz with owner_train",
            )
        people = np.unique(labels.owner)
        if clients > len(people):
            raise UserError(
                f"partition natural: {clients} clients, but the data come from {len(people)} people",
                hint=f"use at most {len(people)} clients (held-out people are not counted)",
            )
        chosen = np.sort(rng.permutation(people)[:clients])
        order = np.argsort(labels.owner, kind="stable")  # each person's examples, in their own order
        starts = np.searchsorted(labels.owner[order], chosen, side="left")
        stops = np.searchsorted(labels.owner[order], chosen, side="right")
        return [order[a:b].astype(np.int64) for a, b in zip(starts, stops, strict=True)]

    def describe(self) -> str:
        return "each client is one person, as the data set records them (natural)"
