"""People of the test systems: digits with few or all labels and pixels, dealt out so that no cell is small.

Where a client holds two people of a class, a clean system is none, whatever it sends. `EqualCells` deals every
class out in cells of one size, so that only what a system does on purpose is about few people.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.datasets._arrays import moments
from fedaudit.fl.datasets.digits import Digits
from fedaudit.fl.partitions._shares import collect, pools
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings


class CoarseDigits(Dataset):
    """scikit-learn's digits under coarser labels, and with coarser pixels."""

    title = "Coarse digits"
    holds = "public"
    source = "scikit-learn; UCI Optical Recognition of Handwritten Digits"

    @settings
    class Config:
        labels: Literal[2, 5, 10] = Field(
            default=10, description="how many: 2 are 0 to 4 and 5 to 9, 5 are pairs"
        )
        side: Literal[4, 8] = Field(default=8, description="pixels of an image across; 4 are means of four")
        drawn: bool = Field(
            default=False, description="labels are drawn, as arms of a trial are, and can only be learnt by heart"
        )

    def load(self) -> Data:
        found = Digits().load()
        train, test = self._coarse(found.train), self._coarse(found.test)
        mean, std = moments(train.x)
        width = 10 // self.config.labels
        names = tuple("".join(map(str, range(c * width, (c + 1) * width))) for c in range(self.config.labels))
        return Data(
            train=train, test=test, classes=names, mean=mean, std=std, about="Handwritten digits, coarser."
        )

    def _coarse(self, part: Arrays) -> Arrays:
        x = part.x
        if self.config.side == 4:
            x = x.reshape(len(x), 1, 4, 2, 4, 2).mean((3, 5)).astype(np.float32)
        y = part.y * self.config.labels // 10
        if self.config.drawn:
            y = np.random.default_rng(len(y)).permutation(y)
        return Arrays(x=x, y=y)


class EqualCells(Partition):
    """Every class in cells of one size; some clients may hold more, or one person of a class."""

    title = "Equal cells"
    source = "ours"

    @settings
    class Config:
        classes_each: AtLeastZero = Field(
            default=0, description="classes of a client, following one another; 0: all of them"
        )
        heavy: tuple[AtLeastZero, ...] = Field(
            default=(), description="clients that hold `times` as many of each class"
        )
        times: AtLeastOne = Field(default=1, description="how many cells of others a heavy client holds")
        singles: tuple[AtLeastZero, ...] = Field(
            default=(), description="clients that hold one person of each class but the first"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        held = self._deal_classes(labels.classes, clients)
        cells = held * np.where(np.isin(np.arange(clients), self.config.heavy), self.config.times, 1)[:, None]
        stock = pools(labels.y, labels.classes, rng)
        size = min(len(s) // max(1, int(cells[:, c].sum())) for c, s in enumerate(stock))
        if not size:
            raise UserError("equal_cells: more cells than examples of a class", hint="use fewer clients")
        given: list[list[Index]] = [[] for _ in range(clients)]
        for c, people in enumerate(stock):
            cuts = np.cumsum(cells[:, c] * size)
            for k, cell in enumerate(np.split(people[: cuts[-1]], cuts[:-1])):
                given[k].append(cell[:1] if k in self.config.singles and c else cell)
        return collect(given)

    def _deal_classes(self, classes: int, clients: int) -> NDArray[np.int64]:
        """[clients, classes] 1 where a client holds the class."""
        each = self.config.classes_each or classes
        held = np.zeros((clients, classes), np.int64)
        for k in range(clients):
            held[k, np.arange(each * k, each * (k + 1)) % classes] = 1
        return held

    def describe(self) -> str:
        c = self.config
        special = f"; clients {list(c.heavy)} hold {c.times} times as many" if c.heavy else ""
        special += f"; clients {list(c.singles)} hold one person of a class" if c.singles else ""
        return f"every class is dealt out in cells of one size (equal_cells){special}"
