"""MLP: fully connected layers with ReLU. Two of 200 units are McMahan et al.'s "2NN"."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import relu

from fl.errors import UserError
from fl.model import Net
from fl.models._images import channels


class MLP(Net):
    """Features are the last hidden layer after its ReLU. 199,210 weights for MNIST (2NN)."""

    source = "McMahan et al., AISTATS 2017, arXiv:1602.05629"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        hidden: tuple[int, ...] = (200, 200)

        def __post_init__(self) -> None:
            if min(self.hidden, default=0) < 1:
                raise UserError(
                    f"model.hidden must list widths >= 1, got {list(self.hidden)}",
                    hint="a model without hidden layers is `logreg`",
                )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        channels("mlp", shape)
        widths = [prod(shape), *(config or self.Config()).hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.head = nn.Linear(widths[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        h: Any = x.flatten(1)
        for layer in self.layers:
            h = relu(layer(h))
        out: Tensor = h
        return out
