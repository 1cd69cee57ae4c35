"""Recurrent networks of the papers for Shakespeare: from 80 characters to the next one."""

import torch
from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import name_of
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("char_lstm", "shakespeare_rnn")


class _RNN(Net):
    """What both share: an embedding of 8 numbers a token, of one vocabulary."""

    @settings
    class Config:
        vocabulary: AtLeastOne | None = Field(
            default=None, description="number of tokens the model knows; null is as many as there are classes"
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        check_sequence(name_of(type(self)), shape)
        self.embedding = nn.Embedding((config or self.Config()).vocabulary or classes, 8)


class CharLSTM(_RNN):
    """CharLSTM: FedRS's network for Shakespeare: from 80 characters to the next one.

    799,368 weights before the head with a vocabulary of 81: embedding 8, two LSTM layers of 256 with
    torch's two bias vectors each. The head has no bias, as FedRS's others. Features are the output of
    the second layer after the last token.
    """

    source = "FedRS, KDD 2021"

    def __init__(self, shape: tuple[int, ...], classes: int, config: _RNN.Config | None = None) -> None:
        super().__init__(shape, classes, config)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.embedding(x))[0]  # [b, T, 256]
        return states[:, -1]


class ShakespeareRNN(_RNN):
    """Shakespeare RNN: FreezeFL's network: from 80 characters to the next one.

    817,872 weights with a vocabulary of 80: embedding 8, two LSTM layers of 256, dense 80. Keras, which
    the paper used, has one bias vector a layer where torch has two; here torch's are off and the bias is
    the weight of an input that is always one. The authors' code puts sigmoids under a categorical loss;
    logits for a softmax, as everywhere here. Features are the output of the second layer after the last
    token.
    """

    source = "FreezeFL"

    def __init__(self, shape: tuple[int, ...], classes: int, config: _RNN.Config | None = None) -> None:
        super().__init__(shape, classes, config)
        self.lstm1 = nn.LSTM(8 + 1, 256, bias=False, batch_first=True)
        self.lstm2 = nn.LSTM(256 + 1, 256, bias=False, batch_first=True)
        self.head = nn.Linear(256, classes)

    def features(self, x: Tensor) -> Tensor:
        first: Tensor = self.lstm1(add_one(self.embedding(x)))[0]
        second: Tensor = self.lstm2(add_one(first))[0]  # [b, T, 256]
        return second[:, -1]


def check_sequence(model: str, shape: tuple[int, ...]) -> None:
    """Raise UserError where the data are no [T] token sequences."""
    if len(shape) != 1:
        raise UserError(
            f"{model} takes token sequences [T]; one example of this data set has shape {list(shape)}",
            hint="choose a model for images: `fedaudit tools list models`",
        )


def add_one(x: Tensor) -> Tensor:
    """[b, T, D] -> [b, T, D + 1]: with the input that carries the bias."""
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
