"""MLP: fully connected layers with ReLU. Two of 200 units are McMahan et al.'s "2NN"."""

from itertools import pairwise
from math import prod
from typing import Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import relu

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("mlp", "tab_mlp")


class MLP(Net):
    """Features are the last hidden layer after its ReLU. 199,210 weights for MNIST (2NN)."""

    source = "McMahan et al., AISTATS 2017, arXiv:1602.05629"

    @settings
    class Config:
        hidden: tuple[AtLeastOne, ...] = Field(
            default=(200, 200),
            min_length=1,
            description="widths of the hidden layers; a model without any is `logreg`",
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        widths = [prod(shape), *(config or self.Config()).hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        h: Any = x.flatten(1)
        for layer in self.layers:
            h = relu(layer(h))
        out: Tensor = h
        return out


class TabMLP(MLP):
    """The same with layers of 64 and 32 units, which rows of a table are enough for."""

    @settings
    class Config:
        hidden: tuple[AtLeastOne, ...] = Field(
            default=(64, 32), min_length=1, description="widths of the hidden layers"
        )
