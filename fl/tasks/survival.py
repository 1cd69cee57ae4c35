"""Survival: how soon something happens to each example, by Cox's partial likelihood.

y is floating point [n, 2]: a time, and 1 where the event was seen then or 0 where watching ended. The network
gives one risk. An example whose event was seen loses ln(sum of exp(risk) over all that were watched at least as
long) - risk, the others nothing (Cox 1972; ties by Breslow). That is no sum over examples: a term depends on who
else is in the batch, so gradients by example are not gradients of the loss. A shift of all risks changes nothing,
so the gradient of the last bias is 0 and tells nothing.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.runtime.task import Labels, Task

ROWS = 1000  # of which all pairs are compared at once


class Survival(Task):
    title = "Survival"
    fewest_names = 0
    words = "a risk"
    separable = False

    def misfit(self, y: Labels, n: int) -> str:
        if y.shape != (n, 2) or y.dtype.kind != "f":
            return f"{y.dtype} {list(y.shape)}, expected floating-point numbers [{n}, 2], times and events"
        if not np.isfinite(y).all() or (y[:, 0] < 0).any():
            return "negative or infinite times, expected finite ones from 0"
        return "" if np.isin(y[:, 1], (0, 1)).all() else "events other than 0 and 1 in the second column"

    def width(self, y: Labels) -> int:
        return 1

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        risk, time, event = out.reshape(len(y)), y[:, 0], y[:, 1]
        watched = time[None] >= time[:, None]  # [n, n]: who is at risk when it happens to each
        at_risk = torch.where(watched, risk[None], -torch.inf)
        return event * (at_risk.logsumexp(1) - risk)

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        """Share of an example's comparable pairs in order; a half where it has none."""
        risk, time, event = out.reshape(len(y)), y[:, 0], y[:, 1] > 0
        found = [torch.zeros(0).to(risk.device)]
        for first in range(0, len(y), ROWS):
            some = slice(first, first + ROWS)
            own, at = risk[some, None], time[some, None]
            after = event[some, None] & (at < time)  # [rows, n]: its event was seen before the other's time
            before = event & (time < at)
            same = (own == risk).float() / 2
            pairs = after.sum(1) + before.sum(1)
            right = (after * ((own > risk) + same)).sum(1) + (before * ((own < risk) + same)).sum(1)
            found.append(torch.where(pairs > 0, right / pairs.clamp(min=1), 0.5))
        return torch.cat(found)

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        """Seen at another time: between a tenth and ten times as late, at least twice or at most half."""
        powers = [(0.3 + (draw >> 1) % 1000 / 1000 * 0.7) * (1 if draw & 1 else -1) for draw in draws]
        return np.stack([y[:, 0] * 10.0 ** np.array(powers), np.ones(len(y))], 1).astype(y.dtype)

    def groups(self, y: Labels) -> NDArray[np.int64]:
        return y[:, 1].astype(np.int64)

    def name_groups(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        return ("not seen", "seen")
