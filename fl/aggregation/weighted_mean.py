"""Weighted mean of states, one at a time: the server's memory does not grow with the clients.

Sums are kept in double precision, where the first state lies. A float32 times a count is then exact, so the mean
of one client is that client to the last bit, and equal weights agree whatever their size.
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

    def add(self, state: Mapping[str, Tensor], weight: float) -> None:
        self.total += weight
        for name, value in state.items():
            if name not in self._sums:
                self._sums[name] = torch.zeros(value.shape, dtype=torch.float64, device=value.device)
                self._dtypes[name] = value.dtype
            self._sums[name].add_(value.to(self._sums[name].device).double(), alpha=weight)

    def value(self) -> State:
        """The mean, on the processor, in the states' precision; of counts, such as BatchNorm's, the nearest one.

        Raises ZeroDivisionError where the weights sum to 0.
        """
        if self.total == 0:
            raise ZeroDivisionError("mean of states whose weights sum to zero")
        means = ((k, s / self.total, self._dtypes[k]) for k, s in self._sums.items())
        return {
            k: (mean if dtype.is_floating_point else mean.round()).to(dtype).cpu() for k, mean, dtype in means
        }
