"""A network in which every unit hears everybody.

A unit with a ReLU may be awake for a single person of a batch, whose image is then the gradient of its weights: a
federation with such units leaks, however large its cells are.
"""

from dataclasses import dataclass
from math import prod
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.ranges import AtLeastOne


class Smooth(Net):
    """One hidden layer of tanh units, on the pixels."""

    source = "ours"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        hidden: Annotated[AtLeastOne, Field(description="units of the hidden layer")] = 32

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        width = (config or self.Config()).hidden
        self.hidden = nn.Linear(prod(shape), width)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.hidden(x.flatten(1)))
        return out
