"""Classify: one class for each example, by cross-entropy of a logit for each class.

y is int64 [n], from 0. With b the gradient of the last layer's bias, which is the mean over a batch of softmax
less one-hot label, the shares of labels are mean softmax - b.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.runtime.task import Labels, Task

NO_ANSWER = -1  # no class


class Classify(Task):
    title = "Classification"
    fewest_names = 2
    words = "a class"
    has_classes = True

    def misfit(self, y: Labels, n: int) -> str:
        if y.shape == (n,) and y.dtype.kind in "iu" and not (n and y.min() < 0):
            return ""
        least = f", from {y.min()}" if y.dtype.kind in "iuf" and y.size and y.min() < 0 else ""
        return f"{y.dtype} {list(y.shape)}{least}, expected whole numbers [{n}] from 0"

    def width(self, y: Labels) -> int:
        return int(y.max()) + 1 if len(y) else 0

    def fits_names(self, y: Labels, names: int) -> bool:
        return self.width(y) <= names

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(out, y, reduction="none")

    def loss(self, out: Tensor, y: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
        return cross_entropy(out, y, reduction=reduction)  # one kernel, whose bits recorded runs have

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        return (choose_classes(out) == y).float()

    def groups(self, y: Labels) -> NDArray[np.int64]:
        return y

    def name_groups(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        return classes

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        moved = [(int(c) + 1 + draw % (classes - 1)) % classes for c, draw in zip(y, draws, strict=True)]
        return np.array(moved, y.dtype)


def choose_classes(logits: Tensor) -> Tensor:
    """[n, C] -> [n] the likeliest class; NO_ANSWER, which is neither right nor as wanted, where one is NaN."""
    return logits.argmax(1).masked_fill(logits.isnan().any(1), NO_ANSWER)
