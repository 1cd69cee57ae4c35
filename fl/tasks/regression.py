"""Regression: a number for each example, by the squared error.

y is floating point [n]. Groups are deciles of public labels, so that no client's own decide where they are cut,
and a score is 1 - |error| / spread, at least 0, by the deviation of public labels. With b the gradient of the
last bias, the mean label is mean output - b / 2.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.task import Labels, Task

DECILES = np.arange(1, 10) / 10


class Regression(Task):
    title = "Regression"
    fewest_names = 0
    words = "a number"

    @settings
    class Config:
        cuts: tuple[float, ...] = Field(
            default=(), description="public numbers, rising, that groups of labels are cut at; none: no groups"
        )
        spread: Positive = Field(default=1.0, description="error at which an answer is worth nothing")

    def misfit(self, y: Labels, n: int) -> str:
        if y.shape != (n,) or y.dtype.kind != "f":
            return f"{y.dtype} {list(y.shape)}, expected floating-point numbers [{n}]"
        return "" if np.isfinite(y).all() else "NaN or infinite in places, expected finite numbers"

    def width(self, y: Labels) -> int:
        return 1

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return (out.reshape(y.shape) - y).square()

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        worth: Tensor = 1 - (out.reshape(y.shape) - y).abs() / self.config.spread
        return worth.clamp(min=0).nan_to_num(0.0)

    def groups(self, y: Labels) -> NDArray[np.int64] | None:
        if not self.config.cuts:
            return None
        return np.searchsorted(np.array(self.config.cuts), y, side="right").astype(np.int64)

    def name_groups(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        cuts = [f"{cut:.4g}" for cut in self.config.cuts]
        if not cuts:
            return ()
        between = [f"{low} to {high}" for low, high in pairwise(cuts)]
        return (f"below {cuts[0]}", *between, f"from {cuts[-1]}")

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        """One to two spreads off, up or down."""
        moves = [(1 + (draw >> 1) % 1000 / 1000) * (1 if draw & 1 else -1) for draw in draws]
        return np.asarray(y + self.config.spread * np.array(moves), y.dtype)

    def learn_scale(self, y: Labels) -> "Regression":
        if self.config.cuts or len(y) < 2 or not y.std() > 0:
            return self
        y = y.astype(np.float64)
        cuts = np.unique(np.quantile(y, DECILES))
        return Regression(self.Config(cuts=tuple(cuts.tolist()), spread=float(y.std())))
