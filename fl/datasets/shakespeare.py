"""Shakespeare: 80 characters of a role's lines, and the character that follows.

LEAF (Caldas et al. 2018, arXiv:1812.01097). Read from `path`, the JSON files of LEAF's
preprocessing; see fl/datasets/_leaf.py. Tokens and classes are the 80 characters that LEAF knows;
with `vocabulary: 81`, as in FedRS, an 81st stands for any other.

LEAF's split by sample draws windows at random, and neighbours overlap in 79 characters, so that most
of its test part is in its training part. For an audit of membership give the unsplit files: each
role's last windows are then held out, none overlapping those before.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._leaf import read_leaf
from fedaudit.fl.runtime.ranges import ProperShare

# LEAF, models/utils/language_utils.py
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LENGTH = 80  # characters a sequence; by chance as many as there are letters


class Shakespeare(Dataset):
    title = "Shakespeare"
    source = "LEAF, arXiv:1812.01097"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        path: Annotated[str, Field(description="folder of the JSON files that LEAF's preprocessing wrote")]
        vocabulary: Annotated[
            Literal[80, 81],
            Field(description="tokens: LEAF's 80 characters, or one more for all others as in FedRS"),
        ] = 80
        test_fraction: Annotated[
            ProperShare,
            Field(description="share of each role's windows held out for testing, where LEAF has not split"),
        ] = 0.2

    def load(self) -> Data:
        train, test = read_leaf(self.config.path, self._convert, self.config.test_fraction, gap=LENGTH - 1)
        names = [repr(c)[1:-1] if c == "\n" else c for c in LETTERS]
        return Data(
            train=train,
            test=test,
            classes=tuple(names + ["other"] * (self.config.vocabulary - 80)),
            about="80 characters of a role of Shakespeare's and the next one (LEAF).",
        )

    def _convert(self, x: list[Any], y: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if any(len(text) != LENGTH for text in x) or any(len(c) != 1 for c in y):
            raise ValueError(f"x must hold texts of {LENGTH} characters, y single ones")
        return np.array([self._tokens(text) for text in x]), self._tokens("".join(y))

    def _tokens(self, text: str) -> NDArray[np.int64]:
        tokens = np.array([LETTERS.find(c) for c in text], dtype=np.int64)
        unknown = tokens < 0
        if self.config.vocabulary == 80 and unknown.any():
            raise ValueError(f"unknown character {text[int(unknown.argmax())]!r}; set vocabulary: 81 to allow it")
        tokens[unknown] = len(LETTERS)
        return tokens
