"""LogReg: one linear layer on the numbers of an example. Seol and Kim's MNIST model, 7,850 weights.

Where a number is wanted it is linear regression, and of survival Cox's model: the task says what its output is.
"""

from math import prod
from typing import Any

from torch import Tensor, nn

from fedaudit.fl.model import Net


class LogReg(Net):
    """Its features are the numbers themselves."""

    source = "Seol and Kim"

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.head = nn.Linear(prod(shape), classes)

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)
