"""IID: a random equal split, so that clients differ by chance only.

Sizes differ by one at most; with more clients than examples
some clients hold nothing.
"""

import numpy as np

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition


class IID(Partition):
    title = "IID"
    source = "McMahan et al., AISTATS 2017, arXiv:1602.05629"
    by_group = False

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return [np.sort(p) for p in np.array_split(rng.permutation(len(labels.y)), clients)]

    def describe(self) -> str:
        return "a random equal split: every client's data come from the same distribution"
