"""Several: yes or no for each of several findings, by the mean over findings of the logistic loss.

y is 0 or 1, [n, L]; the network gives a logit for each finding. With b the gradient of the last bias, the share
of yes of each finding is mean sigmoid - L b.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedaudit.fl.runtime.task import Labels, Task


class Several(Task):
    title = "Several labels"
    fewest_names = 1
    words = "yes or no for each of several findings"

    def misfit(self, y: Labels, n: int) -> str:
        if y.ndim == 2 and len(y) == n and y.shape[1] and np.isin(y, (0, 1)).all():
            return ""
        return f"{y.dtype} {list(y.shape)}, expected 0 or 1, [{n}, findings]"

    def width(self, y: Labels) -> int:
        return int(y.shape[1])

    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(out, y.to(out), reduction="none").mean(1)

    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        return ((out > 0) == (y > 0)).float().mean(1) * ~out.isnan().any(1)

    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        bits = [[draw >> i & 1 for i in range(y.shape[1])] for draw in draws]
        drawn = np.array(bits, y.dtype).reshape(y.shape)
        same = (drawn == y).all(1)[:, None]
        return np.where(same, 1 - y, drawn).astype(y.dtype)
