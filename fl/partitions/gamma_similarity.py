"""Gamma-similarity: a share gamma of the examples is dealt out at random, the rest sorted by label and cut.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD. ICML 2020. arXiv:1910.06378, sec. 7 (s % similarity);
ByzFL's gamma_similarity_niid. gamma = 0 is a data set sorted by label (arXiv:2006.09365, sec. 6). Studies of
malicious clients give such clients an even draw of the data and split the rest over the honest: the last `mixed`
clients hold as many examples as the others, drawn at random. There those clients' examples are others' as well;
here nobody shares any.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings


class GammaSimilarity(Partition):
    title = "Gamma-similarity"
    source = "arXiv:1910.06378, sec. 7"

    @settings
    class Config:
        gamma: Share = Field(default=0.0, description="share of the examples that is dealt out at random")
        mixed: AtLeastZero = Field(default=0, description="the last clients, so many, hold random examples alone")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        mixed, n = self.config.mixed, len(labels.y)
        if mixed >= clients:
            raise UserError(
                f"partition.mixed must be below {clients}, the number of clients, got {mixed}",
                hint="the others hold the examples that are sorted by label",
                key="federation.partition.mixed",
            )
        order = rng.permutation(n)
        own, order = np.split(order, [n * mixed // clients])
        alike, rest = np.split(order, [round(len(order) * self.config.gamma)])
        rest = rest[np.argsort(labels.y[rest], kind="stable")]
        others = clients - mixed
        sorted_by_label = zip(np.array_split(alike, others), np.array_split(rest, others), strict=True)
        return [
            *(np.sort(np.concatenate(pair)) for pair in sorted_by_label),
            *(np.sort(part) for part in (np.array_split(own, mixed) if mixed else ())),
        ]

    def describe(self) -> str:
        last = f"; the last {self.config.mixed} clients hold random examples alone" if self.config.mixed else ""
        return (
            f"{100 * self.config.gamma:g} % of the examples are dealt out at random, the rest is sorted by label "
            f"and cut (gamma_similarity){last}"
        )
