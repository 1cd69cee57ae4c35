"""Tokens of a data set of text, and secrets that were put into it: records, which attacks may read too."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What token ids of a data set of text stand for, and where that list is from."""

    pieces: tuple[str, ...]  # one an id; those that go on a word begin with ##
    origin: str  # the text that the pieces were chosen by, in words: "Python's help pages"
    private: bool = False  # chosen by clients' own text, so that the list itself tells of it
    padding: int = 0  # id of what stands behind the end of a text; it is neither read nor predicted
    end: int = 1  # id of what ends a text
    unknown: int | None = None  # id of what cannot be cut; null: everything can
    folder: str = ""  # of Hugging Face's format, whose own tokenizer cuts texts; empty: ours does

    def mask(self, x: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which ids [..., T] are of the text."""
        return np.asarray(x != self.padding)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, without padding and end; words stand one space apart."""
        pieces = [self.pieces[i] for i in ids if i not in (self.padding, self.end)]
        return join_pieces(pieces)


def join_pieces(pieces: Iterable[str]) -> str:
    """Text of pieces: one that begins with ## goes on the word before it, where there is one."""
    out: list[str] = []
    for piece in pieces:
        goes_on = piece.startswith("##") and len(piece) > 2
        if goes_on and out:
            out[-1] += piece[2:]
        else:
            out.append(piece[2:] if goes_on else piece)
    return " ".join(out)


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A made-up secret that was put into an owner's training texts, or a control that is in none."""

    prefix: str  # the words before it
    secret: str
    copies: int  # texts of the owner's that hold it; 0: a control
    owner: int = -1
