"""A network in which every unit hears everybody.

A unit with a ReLU may be awake for a single person of a batch, whose image is then the gradient of its weights: a
federation with such units leaks, however large its cells are.
"""

from math import prod

import torch
from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings


class Smooth(Net):
    """One hidden layer of tanh units, on the pixels."""

    source = "ours"

    @settings
    class Config:
        hidden: AtLeastOne = Field(default=32, description="units of the hidden layer")

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        width = (config or self.Config()).hidden
        self.hidden = nn.Linear(prod(shape), width)
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.hidden(x.flatten(1)))
        return out
