"""The contract of a partition: which training examples each client holds."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.plugin import Plugin

Index = NDArray[np.int64]


@dataclass(frozen=True)
class OwnedLabels:
    """What examples are dealt out by: [n] the group of each, such as its class, how many there are, whose."""

    y: NDArray[np.int64]
    classes: int
    owner: NDArray[np.int64] | None = None  # None: the data do not say


class Partition(Plugin):
    """Subclasses write split() and describe(); each file states its rule and where it is from.

    Indices may overlap between clients only where the rule says so (a class that ran out and
    wrapped around); `overlaps` finds out, because membership audits need to know.
    """

    title: str
    source: str = ""
    by_group: ClassVar[bool] = True  # reads the groups of labels, which some tasks have none of

    @abstractmethod
    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        """Indices of examples, one array a client; an array may be empty."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the report, naming the rule and its parameter."""


def overlaps(parts: Sequence[Index]) -> int:
    """How many examples more than one client holds."""
    _, holders = np.unique(np.concatenate([np.unique(p) for p in parts]), return_counts=True)
    return int((holders > 1).sum())


def histogram(labels: NDArray[np.int64], parts: Sequence[Index], classes: int) -> NDArray[np.int64]:
    """[clients, classes] counts n_{k,c}."""
    rows = [np.bincount(labels[p], minlength=classes) for p in parts]
    return np.array(rows, np.int64).reshape(len(rows), -1) if rows else np.zeros((0, classes), np.int64)
