"""What the time of planting leaks depends on, before any is planted: who is played, and how often.

A control states it as `count_steps`: batch size -> steps of training, and under VISITS how often a client is
played.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedaudit.audit.case.case import KnownFederation

VISITS = 0  # of which nothing but the visit itself counts, however long the client then trains
READ = 3  # examples that are read take as long as one that is trained on
PRIVATE = 2  # steps take as long as one that a protection acts in, as DP-SGD does; 4 of the smallest network


@dataclass(frozen=True, kw_only=True)
class PlayedClients:
    """The clients that leaks can be planted through: those that hold an example."""

    classes: Sequence[Sequence[int]]  # of each, how many examples it has of each of its classes
    upload_bytes: int = 0  # of a model that is sent
    is_protected: bool = False  # leaks are planted without the protections as well
    trains_privately: bool = False  # a protection acts in training: with and without are two visits
    auxiliary: int = 0  # examples of the auditor's
    has_truth: bool = (
        True  # whether it is known what clients hold; else they are played with the auditor's examples
    )

    @classmethod
    def of(cls, federation: KnownFederation, parameters: int) -> Self:
        """Those of a federation whose model has so many parameters."""
        examples, labels = federation.examples, federation.data.group(federation.data.train)
        owned = [*examples.parts.values()] or [examples.planted]
        classes = [np.unique(labels[rows], return_counts=True)[1].tolist() for rows in owned if len(rows)]
        return cls(
            classes=classes if examples.parts else classes * federation.clients,
            upload_bytes=4 * parameters,
            auxiliary=len(examples.auxiliary),
            is_protected=bool(federation.protections) or federation.private is not None,
            trains_privately=federation.private is not None,
            has_truth=bool(examples.parts),
        )

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def origins(self) -> int:
        """How often each leak is planted: with the run's protections and, where there are any, without."""
        return 1 + self.is_protected

    @property
    def visits(self) -> int:
        """How many visits it takes to plant a leak in every way where one visit serves both, if it can."""
        return 1 + self.trains_privately

    @property
    def protected_step(self) -> int:
        """Steps that take as long as one with the protections."""
        return PRIVATE if self.trains_privately else 1

    @property
    def step(self) -> int:
        """Steps that take as long as one in every such visit."""
        return self.protected_step + self.trains_privately

    @property
    def sizes(self) -> list[int]:
        """How many examples each has."""
        return [sum(own) for own in self.classes]

    @property
    def mean_size(self) -> int:
        """How many examples one has on average."""
        return sum(self.sizes) // max(1, len(self))

    @property
    def mean_classes(self) -> int:
        """Of how many classes one has examples on average."""
        return sum(map(len, self.classes)) // max(1, len(self))

    def take(self, number: int) -> Sequence[Sequence[int]]:
        """The classes of so many clients; which of them are played is drawn later."""
        return self.classes[:number]


def count_reading(visits: int, examples: int) -> Counter[int]:
    """The steps of so many visits of a client that reads so many examples in each and does not train."""
    return Counter({VISITS: visits}) + Counter({max(1, examples // READ): visits})


def count_groups(classes: Sequence[Sequence[int]], n: int, wanted: int) -> int:
    """How many groups of n examples of one class there are, of those wanted: a class of exactly n has one."""
    able = [size for own in classes for size in own if size >= n]
    return wanted if any(size > n for size in able) else min(wanted, len(able))
