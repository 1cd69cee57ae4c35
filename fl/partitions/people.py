"""People: whole people are dealt to clients, as patients to clinics, so that no one's examples are in two (P-P).

Without skew every client gets as many people, by chance. With `alpha` each person goes to a client drawn by how
much that client has of the person's most frequent class: shares of every class are a Dirichlet draw over clients,
as in Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. 2019. arXiv:1909.06335; there over the classes of single examples.
"""

import numpy as np
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive
from fedaudit.fl.runtime.settings import settings


class People(Partition):
    title = "Whole people"
    source = "arXiv:1909.06335, by people"

    @settings
    class Config:
        alpha: Positive | None = Field(
            default=None, description="concentration of the classes over clients; small is skewed, null is none"
        )
        each: AtLeastOne | None = Field(
            default=None, description="examples of a client, the first of its people's; null: all of them"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        if labels.owner is None:
            raise UserError(
                "partition people: this data set does not say whose the examples are",
                hint="notes, femnist and shakespeare do; so does an npz with owner_train",
            )
        people = rng.permutation(np.unique(labels.owner))
        if self.config.alpha is None:
            place = {person: i % clients for i, person in enumerate(people.tolist())}
        else:
            shares = rng.dirichlet(np.full(clients, self.config.alpha), size=labels.classes)
            main = {
                p: int(np.bincount(labels.y[labels.owner == p], minlength=labels.classes).argmax())
                for p in people.tolist()
            }
            place = {person: int(rng.choice(clients, p=shares[main[person]])) for person in people.tolist()}
        of = np.array([place[person] for person in labels.owner.tolist()], np.int64)
        return [np.flatnonzero(of == k)[: self.config.each].astype(np.int64) for k in range(clients)]

    def describe(self) -> str:
        skew = "by chance" if self.config.alpha is None else f"skewed by class, alpha={self.config.alpha:g}"
        most = "" if self.config.each is None else f", at most {self.config.each} examples each"
        return f"whole people are dealt to clients, {skew}{most} (people)"
