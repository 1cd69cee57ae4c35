"""Segment: a class for each place of an example, by the mean over places of the cross-entropy.

y is int64 [n, *places], from 0, where places are what an example is without its channels; the network gives a
logit for each class and place, [n, C, *places]. A score is Dice of what is not class 0, the background. With b
the gradient of the last bias, the shares of classes over all places are mean softmax - b.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.runtime.task import Labels, Task


class Segment(Task):
    title = "Segmentation"
    fewest_names = 2
    words = "a class for each place"
    by_place = True

    def misfit(self, y: Labels, n: int) -> str:
        if len(y) == n and y.ndim > 1 and y.dtype.kind in "biu" and not (y.size and y.min() < 0):
            return ""
        return f"{y.dtype} {list(y.shape)}, expected whole numbers from 0, [{n}, places]"

    def width(self, y: Labels) -> int:
        return max(2, int(y.max()) + 1) if y.size else 2

    def fits_names(self, y: Labels, names: int) -> bool:
        return names == 0 or self.width(y) <= names

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(out, y.long(), reduction="none").flatten(1).mean(1)

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        claimed, true = out.argmax(1).flatten(1), y.flatten(1)
        return measure_dice((claimed == true) & (true > 0), claimed > 0, true > 0)

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        """Every place's class moved by one number."""
        moves = np.array([1 + draw % (classes - 1) for draw in draws], y.dtype)
        return np.asarray((y + moves.reshape(-1, *(1 for _ in y.shape[1:]))) % classes, y.dtype)


def measure_dice(right: Tensor, claimed: Tensor, true: Tensor) -> Tensor:
    """[n] twice the places that are right over all that are claimed and all that are true; 1 without any."""
    both, of = 2 * right.sum(1).float(), (claimed.sum(1) + true.sum(1)).float()
    return (both / of.clamp(min=1)).masked_fill(of == 0, 1.0)
