"""N-class partitions: every client holds examples of a few classes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import CYCLED, Cycled, by_shares, collect, pools, sizes
from fedaudit.fl.partitions.shards import assign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("n_class", "n_class_exhaustive", "n_class_extreme")


class NClass(Partition):
    """N-class: every client holds only a few classes, drawn at random (P-N, the pathological split).

    ReBaFL (N = 2, 1000 examples a client, 20 or 50 clients), after McMahan et al. 2017.

    A client draws N distinct classes uniformly and takes an equal number of examples of each, the
    remainder from the last. Each class is walked through in one random order: nobody shares an example
    until the class is used up, then the walk starts again. A class that many clients drew is therefore
    shared between them, as in the authors' code; fedaudit.fl.data.partition.overlaps counts it.
    """

    title = "N-class"
    source = "ReBaFL; McMahan et al., arXiv:1602.05629"

    @settings
    class Config:
        classes_per_client: AtLeastOne = Field(default=2, description="N: classes that every client holds")
        examples_per_client: Cycled = CYCLED

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        each = [self.config.classes_per_client] * clients
        wanted = sizes(self.config.examples_per_client, len(labels.y), clients)
        return draw_classes(labels.y, labels.classes, each, wanted, rng)

    def describe(self) -> str:
        n = self.config.classes_per_client
        return f"each client holds {n} randomly drawn class{'es' if n > 1 else ''} (n_class, N={n})"


def draw_classes(
    labels: NDArray[np.int64], classes: int, each: Sequence[int], wanted: Sequence[int], rng: np.random.Generator
) -> list[Index]:
    """Client k draws each[k] classes and takes wanted[k] examples of them.

    Raises UserError where a client could be left with too few classes, or hold an example twice.
    """
    stock = pools(labels, classes, rng)
    most = max(size - (n - 1) * (size // n) for n, size in zip(each, wanted, strict=True))
    scarce = min(range(classes), key=lambda c: len(stock[c]))
    if max(each) > classes:
        raise UserError(
            f"classes_per_client is {max(each)}, but the data have {classes} classes",
            hint=f"use a number from 1 to {classes}",
        )
    if any(size < n for n, size in zip(each, wanted, strict=True)):
        raise UserError(
            f"a client of {min(wanted)} examples cannot hold {max(each)} classes",
            hint="raise examples_per_client, or use fewer clients",
        )
    if most > len(stock[scarce]):
        raise UserError(
            f"a client may need {most} examples of one class; class {scarce} has {len(stock[scarce])}",
            hint="lower examples_per_client, or raise classes_per_client",
        )
    position = [0] * classes
    given: list[list[Index]] = []
    for n, size in zip(each, wanted, strict=True):
        mine = []
        for i, c in enumerate(rng.choice(classes, n, replace=False)):
            take = size // n if i < n - 1 else size - (n - 1) * (size // n)
            places = np.arange(position[c], position[c] + take) % len(stock[c])
            position[c] = (position[c] + take) % len(stock[c])
            mine.append(stock[c][places])
        given.append(mine)
    return collect(given)


class NClassExhaustive(Partition):
    """N-class, exhaustive: the whole set is split evenly, N classes a client (P-NE).

    ReBaFL's scalability runs: 100, 200 or 500 clients of |D|/m examples. Built by the assignment of
    `balanced_shards`, with every class having equally many holders: clients times N must
    be a multiple of the number of classes. Sizes are as equal as the classes are.
    """

    title = "N-class, exhaustive"
    source = "ReBaFL"

    @settings
    class Config:
        classes_per_client: AtLeastOne = Field(default=2, description="N: classes that every client holds")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        each = self.config.classes_per_client
        if clients * each % labels.classes:
            raise UserError(
                f"partition.classes_per_client: {clients} clients x {each} classes is not a multiple "
                f"of {labels.classes}, so the set cannot be split evenly",
                hint="change the number of clients, or use balanced_shards",
            )
        return by_shares(labels.y, assign(labels.classes, clients, each, rng).astype(np.float64), rng)

    def describe(self) -> str:
        return (
            "the whole set is split evenly, each client holding "
            f"{self.config.classes_per_client} classes (n_class_exhaustive)"
        )


class NClassExtreme(Partition):
    """N-class, extreme: client i holds the n classes n*i, n*i+1, ... modulo C, and nothing else (P-n).

    GANDALF, n in {1, 2, 4} (CINIC-10) and {4, 6, 8} (EMNIST), 20 clients. A class is split evenly among
    its holders.
    """

    title = "N-class, extreme"
    source = "GANDALF"

    @settings
    class Config:
        classes_per_client: AtLeastOne = Field(
            default=2, description="n: consecutive classes that every client holds"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return by_shares(
            labels.y, windows(labels.classes, clients, self.config.classes_per_client).astype(float), rng
        )

    def describe(self) -> str:
        n = self.config.classes_per_client
        return f"client i holds classes {n}i to {n}i+{n - 1} and nothing else (n_class_extreme, n={n})"


def windows(classes: int, clients: int, each: int) -> NDArray[np.bool_]:
    """[clients, classes] True where client i's run of `each` classes is; runs follow one another.

    Raises UserError where a class would have no holder.
    """
    if not each <= classes <= clients * each:
        raise UserError(
            f"partition: {clients} clients of {each} classes cannot share {classes} classes",
            hint=f"use {-(-classes // clients)} to {classes} classes a client",
        )
    held = np.zeros((clients, classes), dtype=bool)
    for i in range(clients):
        held[i, np.arange(each * i, each * (i + 1)) % classes] = True
    return held
