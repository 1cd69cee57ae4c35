"""Inversions of updates that search: variables move until the gradient that they lead to is the update's.

They differ in what is drawn (`draw`), how far a gradient is from the update (`list_measures`), how the variables
move (`descend`) and what is made of them (`finish`).
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Stackable, Update
from fedaudit.attacks.evaluation.searches import Search, Searching
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class UpdateSearch(Search):
    """For the images of one update."""

    update: Update
    knowledge: Knowledge
    labels: Labels  # [B]; of those that are searched for too, none is known yet
    steps: int = 1  # imitated

    @property
    def kind(self) -> Hashable:
        u = self.update
        own = (u.rate, u.decay, u.momentum) if self.steps > 1 else ()
        return id(u.start), frozenset(u.gradient), len(self.labels), self.steps, own


class Drawn(NamedTuple):
    """What one search came to."""

    apart: float  # from the update, in the end; 0 where an update is searched for once
    images: Floats  # [B, C, H, W]
    labels: Labels  # [B]


class UpdateSearching(Searching[UpdateSearch, Drawn], UpdateInversion):
    """Base class. Of several searches for one update the nearest counts, which nobody needs the truth for."""

    @abstractmethod
    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> Sequence[UpdateSearch]:
        """Where the searches for `number` images of an update start: as many for each update."""

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, Labels]:
        return self.invert_all([update], [number], knowledge, rng)[0]

    def invert_all(
        self, chosen: Sequence[Update], numbers: Sequence[int], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Floats, Labels]]:
        def draw_all() -> Iterator[UpdateSearch]:
            for update, number in zip(chosen, numbers, strict=True):
                yield from self.draw(update, number, knowledge, rng)

        return self.pick(self.search(draw_all(), knowledge.device), len(chosen))

    def pick(self, drawn: Sequence[Drawn], updates: int) -> list[tuple[Floats, Labels]]:
        """The nearest of each of so many updates, of searches in their order."""
        starts = len(drawn) // updates
        best = (min(drawn[i : i + starts], key=lambda d: d.apart) for i in range(0, len(drawn), starts))
        return [(d.images, d.labels) for d in best]

    def imitate(self, search: UpdateSearch, stackable: bool) -> Imitation:
        return (Stackable if stackable else Imitation)(search.update, search.knowledge)

    def read(self, search: UpdateSearch, copy: Imitation) -> "Sequence[Tensor]":
        return copy.read(search.update)
