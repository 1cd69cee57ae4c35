"""L-BFGS of several problems at once: what torch.optim.LBFGS does to each, without a word to the host.

torch's steps a single problem, and the host reads numbers of every pair that it keeps. Here problems are rows,
and one whose step ends early stays where it is. Changed: kept are the pairs of the last HISTORY moves of any row,
so that a row which did not move in some of these has fewer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOVES, HISTORY = 20, 100  # torch's own, and so are the tolerances
LEAST_GRADIENT, LEAST_CHANGE, LEAST_CURVATURE = 1e-7, 1e-9, 1e-10


class StackedLBFGS:
    """Of variables [k, ...], whose `grad` the closure sets; without a line search."""

    def __init__(self, variables: "Sequence[Tensor]", lr: float) -> None:
        import torch

        self._variables, self._rate = variables, lr
        # changes of the gradient and moves [k, n], with 1 / their product [k, 1]; zeros where a row has no pair
        self._pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=HISTORY)
        flat = torch.cat([v.detach().flatten(1) for v in variables], 1)
        self._before, self._move = torch.zeros_like(flat), torch.zeros_like(flat)  # of the last move
        self._scale = torch.ones_like(flat[:, :1])
        self._moved = torch.zeros_like(self._scale, dtype=torch.bool)  # whether ever

    def step(self, closure: "Callable[[], Tensor]") -> None:
        """At most MOVES of each row; the closure gives the losses [k]."""
        import torch

        with torch.no_grad():
            loss, gradient = self._evaluate(closure)
            going = ~(gradient.abs().amax(1, keepdim=True) <= LEAST_GRADIENT)
            if not going.any():
                return
            for number in range(1, MOVES + 1):
                way = self._find_way(gradient, going)
                first = self._rate * (1 / gradient.abs().sum(1, keepdim=True)).clamp(max=1)
                move = torch.where(self._moved, self._rate, first) * way
                self._before = torch.where(going, gradient, self._before)
                self._moved = self._moved | going
                going = going & ~((gradient * way).sum(1, keepdim=True) > -LEAST_CHANGE)
                self._move = torch.where(going, move, self._move)
                self._add(torch.where(going, move, torch.zeros_like(move)))
                if number < MOVES:
                    old = loss
                    loss, gradient = self._evaluate(closure)
                    small = (loss - old).abs()[:, None] < LEAST_CHANGE
                    small |= self._move.abs().amax(1, keepdim=True) <= LEAST_CHANGE
                    going = going & ~(small | (gradient.abs().amax(1, keepdim=True) <= LEAST_GRADIENT))

    def _find_way(self, gradient: "Tensor", going: "Tensor") -> "Tensor":
        """[k, n] minus the inverse Hessian, as the kept pairs have it, times the gradient."""
        import torch

        change, moved = gradient - self._before, self._move
        product = (change * moved).sum(1, keepdim=True)
        kept = going & (product > LEAST_CURVATURE)
        y, s = (torch.where(kept, v, torch.zeros_like(v)) for v in (change, moved))
        self._pairs.append((y, s, torch.where(kept, 1 / product, torch.zeros_like(product))))
        self._scale = torch.where(kept, product / change.square().sum(1, keepdim=True), self._scale)
        way, shares = -gradient, []
        for y, s, inverse in reversed(self._pairs):
            shares.append((s * way).sum(1, keepdim=True) * inverse)
            way = way - shares[-1] * y
        way = way * self._scale
        for (y, s, inverse), share in zip(self._pairs, reversed(shares), strict=True):
            way = way + (share - (y * way).sum(1, keepdim=True) * inverse) * s
        return way

    def _evaluate(self, closure: "Callable[[], Tensor]") -> "tuple[Tensor, Tensor]":
        import torch

        with torch.enable_grad():
            loss = closure()
        return loss, torch.cat([v.grad.flatten(1) for v in self._variables if v.grad is not None], 1)

    def _add(self, move: "Tensor") -> None:
        import torch

        parts = torch.split(move, [v[0].numel() for v in self._variables], 1)
        for v, part in zip(self._variables, parts, strict=True):
            v.add_(part.view_as(v))
