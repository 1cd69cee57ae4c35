"""Text: the next token after each of a text's, by the mean over tokens of the cross-entropy.

What is wanted is the text itself, int64 [n, T], 0 where it ended; the network gives a logit for each token of the
vocabulary after each token but the last, [n, T - 1, V]. Data may say of which class a text is: groups then.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax

from fedaudit.fl.runtime.task import Labels, Task
from fedaudit.fl.tasks.classify import Classify


class Text(Task):
    title = "Language"
    fewest_names = 2
    words = "the next token"

    def misfit(self, y: Labels, n: int) -> str:
        if len(y) == n and y.ndim in (1, 2) and y.dtype.kind in "iu":
            return ""
        return f"{y.dtype} {list(y.shape)}, expected tokens [{n}, T], or a class for each text"

    def width(self, y: Labels) -> int:
        return int(y.max()) + 1 if y.size else 0

    def fits_names(self, y: Labels, names: int) -> bool:
        return self.width(y) <= names

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        each, mask = score_next_tokens(out, y)
        return (each * mask).sum(1) / mask.sum(1).clamp(min=1)

    def loss(self, out: Tensor, y: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
        """The mean is over all tokens of a batch, so that short texts weigh less."""
        if reduction == "sum":
            return self.losses(out, y).sum()
        each, mask = score_next_tokens(out, y)
        return (each * mask).sum() / mask.sum().clamp(min=1)

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        mask = y[:, 1:] != 0
        right = (out.argmax(-1) == y[:, 1:]) & mask
        return right.sum(1).float() / mask.sum(1).clamp(min=1)

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        return Classify().mislabel(y, draws, classes)  # of the class of a text; what is wanted is the text

    def groups(self, y: Labels) -> NDArray[np.int64] | None:
        return y if y.ndim == 1 else None

    def name_groups(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        return classes


def score_next_tokens(logits: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """[n, T - 1] -log p of each token of texts [n, T] given those before it, and which of them are text."""
    wanted = x[:, 1:]
    losses = -log_softmax(logits, -1).gather(-1, wanted[..., None])[..., 0]
    return losses, wanted != 0
