"""Inversions of updates that search: variables move until the gradient that they lead to is the update's.

They differ in what is drawn (`draw`), how far a gradient is from the update (`list_measures`), how the variables
move (`descend`) and what is made of them (`finish`).
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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


U = TypeVar("U", bound=UpdateSearch)


class UpdateSearching(Searching[U, Drawn], UpdateInversion):
    """Base class. Of several searches for one update the nearest counts, never by looking at the truth."""

    @abstractmethod
    def draw(self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator) -> Sequence[U]:
        """Where the searches for `number` images of an update start."""

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, Labels]:
        return self.invert_all([update], [number], knowledge, rng)[0]

    def invert_all(
        self, chosen: Sequence[Update], numbers: Sequence[int], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Floats, Labels]]:
        counts = list[int]()

        def draw_all() -> Iterator[U]:
            for update, number in zip(chosen, numbers, strict=True):
                searches = self.draw(update, number, knowledge, rng)
                counts.append(len(searches))
                yield from searches

        found = iter(self.search(draw_all(), knowledge.device))
        return [self.pick([next(found) for _ in range(count)]) for count in counts]

    def pick(self, drawn: Sequence[Drawn]) -> tuple[Floats, Labels]:
        """What is claimed of an update, of what its searches came to: the nearest."""
        best = min(drawn, key=lambda d: d.apart)
        return best.images, best.labels

    def imitate(self, search: U, stackable: bool) -> Imitation:
        return (Stackable if stackable else Imitation)(search.update, search.knowledge)

    def read(self, search: U, copy: Imitation) -> "Sequence[Tensor]":
        return copy.read(search.update)
