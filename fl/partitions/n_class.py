"""N-class: every client holds only a few classes, drawn at random (P-N, the pathological split).

ReBaFL (N = 2, 1000 examples a client, 20 or 50 clients), after McMahan et al. 2017.

A client draws N distinct classes uniformly and takes an equal number of examples of each, the
remainder from the last. Each class is walked through in one random order: nobody shares an example
until the class is used up, then the walk starts again. A class that many clients drew is therefore
shared between them, as in the authors' code; fedaudit.fl.data.partition.overlaps counts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.partition import Index, Partition
from fedaudit.fl.partitions._shares import collect, pools, sizes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne


class NClass(Partition):
    title = "N-class"
    source = "ReBaFL; McMahan et al., arXiv:1602.05629"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        classes_per_client: Annotated[AtLeastOne, Field(description="N: classes that every client holds")] = 2
        examples_per_client: Annotated[
            AtLeastOne | tuple[AtLeastOne, ...] | None,
            Field(
                description="examples of each client; a list is repeated over the clients, null splits all "
                "equally"
            ),
        ] = None

    def split(
        self,
        labels: NDArray[np.int64],
        classes: int,
        clients: int,
        rng: np.random.Generator,
        owner: NDArray[np.int64] | None = None,
    ) -> list[Index]:
        each = [self.config.classes_per_client] * clients
        wanted = sizes(self.config.examples_per_client, len(labels), clients)
        return draw_classes(labels, classes, each, wanted, rng)

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
