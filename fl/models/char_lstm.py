"""CharLSTM: FedRS's network for Shakespeare: from 80 characters to the next one.

799,368 weights before the head with a vocabulary of 81: embedding 8, two LSTM layers of 256 with
torch's two bias vectors each. The head has no bias, as FedRS's others.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.models._tokens import sequence
from fedaudit.fl.runtime.ranges import AtLeastOne


class CharLSTM(Net):
    """Features are the output of the second layer after the last token."""

    source = "FedRS, KDD 2021"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        vocabulary: Annotated[
            AtLeastOne | None,
            Field(description="number of tokens the model knows; null is as many as there are classes"),
        ] = None

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes)
        sequence("char_lstm", shape)
        self.embedding = nn.Embedding((config or self.Config()).vocabulary or classes, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, classes, bias=False)

    def features(self, x: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.embedding(x))[0]  # [b, T, 256]
        return states[:, -1]
