"""What leaks need beside a method: clients of one image, batch statistics, rounds that differ by one client."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.model import Net


class FewImages(Partition):
    """Every other client holds one image."""

    title, source = "Clients of one image", ""

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        order = np.asarray(rng.permutation(len(labels.y)), np.int64)
        lone = clients // 2
        rest = np.array_split(order[lone:], clients - lone)
        return [rest[k // 2] if k % 2 else order[k // 2 : k // 2 + 1] for k in range(clients)]

    def describe(self) -> str:
        return "every other client holds one image"


class AllButOne(Availability):
    """In round t client t - 1 is away; in the first nobody is."""

    title = "All but one"

    def draw(self, round: int, candidates: Sequence[int], streams: object, attempt: int = 0) -> Participation:
        there = tuple(k for k in candidates if k != round - 1)
        return Participation(tuple(candidates), there)

    def describe(self) -> str:
        return "everybody answers but one client, another in every round"


class Normed(Net):
    """A convolution and batch statistics, which are those of the last batch, and one hidden layer."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes, config)
        self.conv = nn.Conv2d(shape[0], 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32, momentum=1.0)
        self.body = nn.Linear(32 * shape[1] * shape[2], 32)
        self.head = nn.Linear(32, classes)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(self.norm(self.conv(x)).relu().flatten(1)).relu()
        return out
