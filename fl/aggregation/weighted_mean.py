"""Weighted mean of states, one at a time: the server's memory does not grow with the clients.

Sums are kept in double precision. A float32 times a count is then exact, so the mean of one client
is that client to the last bit, and equal weights agree whatever their size.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedaudit.fl.model import State


class WeightedMean:
    """add() each state with its weight, then value()."""

    def __init__(self) -> None:
        self.total = 0.0
        self._sums: dict[str, Tensor] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._largest: dict[str, Tensor] = {}

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        self.total += weight
        for name, value in state.items():
            if not value.is_floating_point():  # BatchNorm's batch counter takes the maximum
                before = self._largest.get(name)
                self._largest[name] = value if before is None else torch.maximum(before, value)
                continue
            if name not in self._sums:
                self._sums[name] = torch.zeros(value.shape, dtype=torch.float64)
                self._dtypes[name] = value.dtype
            self._sums[name].add_(value.double().cpu(), alpha=weight)

    def value(self) -> State:
        """The mean, in the states' own precision; raises ZeroDivisionError where the weights sum to 0."""
        if self.total == 0:
            raise ZeroDivisionError("mean of states whose weights sum to zero")
        mean = {k: (s / self.total).to(self._dtypes[k]) for k, s in self._sums.items()}
        return mean | self._largest
