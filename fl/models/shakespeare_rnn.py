"""Shakespeare RNN: FreezeFL's network: from 80 characters to the next one.

817,872 weights with a vocabulary of 80: embedding 8, two LSTM layers of 256, dense 80. Keras, which
the paper used, has one bias vector a layer where torch has two; here torch's are off and the bias is
the weight of an input that is always one. The authors' code puts sigmoids under a categorical loss;
logits for a softmax, as everywhere here.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.models._tokens import sequence
from fedaudit.fl.runtime.ranges import AtLeastOne


class ShakespeareRNN(Net):
    """Features are the output of the second layer after the last token."""

    source = "FreezeFL"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        vocabulary: Annotated[
            AtLeastOne | None,
            Field(description="number of tokens the model knows; null is as many as there are classes"),
        ] = None

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        sequence("shakespeare_rnn", shape)
        self.embedding = nn.Embedding((config or self.Config()).vocabulary or classes, 8)
        self.lstm1 = nn.LSTM(8 + 1, 256, bias=False, batch_first=True)
        self.lstm2 = nn.LSTM(256 + 1, 256, bias=False, batch_first=True)
        self.head = nn.Linear(256, classes)

    def features(self, x: Tensor) -> Tensor:
        first: Tensor = self.lstm1(_with_one(self.embedding(x)))[0]
        second: Tensor = self.lstm2(_with_one(first))[0]  # [b, T, 256]
        return second[:, -1]


def _with_one(x: Tensor) -> Tensor:
    """[b, T, D] -> [b, T, D + 1]: the input that carries the bias."""
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
