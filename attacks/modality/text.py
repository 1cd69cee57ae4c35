"""Text: how near a claimed text comes to a true one, and what adversaries claim who read nothing of the clients.

Texts are tokens int64 [N, T], 0 is padding. Claimed texts are matched to true ones without replacement, by the
sum of their token F1 (Hungarian method), and every baseline is matched in the same way. Choosing the best claim
for each text with the truth in hand, with replacement, scores an adversary that claims one good text eight
times as if it had found eight (as the published evaluation of DAGER does, arXiv:2405.15586).

F1 and ROUGE-L (Lin, ROUGE, ACL 2004, sec. 3.1) are of a pair of texts; ROUGE-L here is the harmonic mean of the
longest common subsequence as a share of both texts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Mark, TextPair
from fedaudit.fl.data.tokens import Tokens as Schema

Tokens = NDArray[np.int64]
Values = NDArray[np.float64]

PADDING = 0
RARE = 0.01  # share of auxiliary texts below which a token is rare
COMMON_TOKENS = "commonest tokens of auxiliary text"
RANDOM_TEXT = "random auxiliary text"


def strip(text: Tokens, end: int = PADDING) -> tuple[int, ...]:
    """The tokens of one text [T] without padding, and without the one that ends every text."""
    return tuple(int(t) for t in text if t not in (PADDING, end))


def compute_f1(claimed: Sequence[int], true: Sequence[int]) -> float:
    """Token F1 of two texts, as bags: twice the common tokens over all of both; 0 where either is empty."""
    common = sum((Counter(claimed) & Counter(true)).values())
    return 2 * common / (len(claimed) + len(true)) if common else 0.0


def compute_distance(claimed: Sequence[int], true: Sequence[int]) -> float:
    """1 - token F1."""
    return 1 - compute_f1(claimed, true)


def compute_rouge_l(claimed: Sequence[int], true: Sequence[int]) -> float:
    """F1 of the longest common subsequence; 0 where either text is empty."""
    row = [0] * (len(true) + 1)
    for a in claimed:
        above = row[:]
        for j, b in enumerate(true):
            row[j + 1] = above[j] + 1 if a == b else max(above[j + 1], row[j])
    return 2 * row[-1] / (len(claimed) + len(true)) if row[-1] else 0.0


def match_texts(claims: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> list[int]:
    """Which claim each true text is given, -1 for none: no claim twice, the greatest sum of F1."""
    from scipy.optimize import linear_sum_assignment

    found = [-1] * len(truth)
    if not len(claims) or not len(truth):
        return found
    gains = np.array([[compute_f1(c, t) for c in claims] for t in truth])
    for row, column in zip(*linear_sum_assignment(-gains), strict=True):
        found[row] = int(column) if gains[row, column] > 0 else -1
    return found


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How near claimed texts come to true ones, [true texts] each, matched; 0 for a text without a claim."""

    f1: Values
    rouge_l: Values
    exact: NDArray[np.bool_]
    claim: tuple[int, ...]  # which one each was given; -1 for none


def compare_texts(claims: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> Likeness:
    """Claimed texts matched to true ones, and what each pair has in common."""
    given = match_texts(claims, truth)
    pairs = [(tuple(claims[i]) if i >= 0 else (), tuple(t)) for i, t in zip(given, truth, strict=True)]
    return Likeness(
        f1=np.array([compute_f1(c, t) for c, t in pairs]),
        rouge_l=np.array([compute_rouge_l(c, t) for c, t in pairs]),
        exact=np.array([bool(t) and c == t for c, t in pairs], np.bool_),
        claim=tuple(given),
    )


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """A claimed set of tokens beside the true one."""

    precision: float  # of no claim: 0
    recall: float
    f1: float
    rare_recall: float | None  # of the true tokens that are rare; None where none is

    @classmethod
    def from_claim(
        cls, claimed: NDArray[np.bool_], true: NDArray[np.bool_], rare: NDArray[np.bool_]
    ) -> "Overlap":
        """All [V]."""
        both, rare_true = int((claimed & true).sum()), true & rare
        return cls(
            precision=both / max(1, int(claimed.sum())),
            recall=both / max(1, int(true.sum())),
            f1=2 * both / max(1, int(claimed.sum()) + int(true.sum())),
            rare_recall=float(claimed[rare_true].mean()) if rare_true.any() else None,
        )


def mark_tokens(texts: Tokens, vocabulary: int, end: int = PADDING) -> NDArray[np.bool_]:
    """[V]: which tokens stand in texts [N, T]; padding, the end and tokens beyond the vocabulary do not."""
    found = np.zeros(vocabulary, np.bool_)
    found[texts[(texts > PADDING) & (texts < vocabulary) & (texts != end)]] = True
    return found


@dataclass(frozen=True, kw_only=True)
class Background:
    """What auxiliary texts tell of a language: how many of them hold each token, [V]."""

    holding: NDArray[np.int64]
    texts: int

    @classmethod
    def from_texts(cls, texts: Tokens, vocabulary: int, end: int = PADDING) -> "Background":
        """Of auxiliary texts [N, T]; nothing is known where there are none."""
        holding = np.zeros(vocabulary, np.int64)
        for text in texts:
            holding += mark_tokens(text, vocabulary, end)
        return cls(holding=holding, texts=len(texts))

    @property
    def rare(self) -> NDArray[np.bool_]:
        """[V]: tokens in less than RARE of the texts, and so all without texts."""
        return np.asarray(self.holding < RARE * max(1, self.texts))

    @property
    def order(self) -> NDArray[np.int64]:
        """All tokens but padding, the commonest first; of equals the first in the vocabulary."""
        found = np.argsort(-self.holding, kind="stable")
        return np.asarray(found[found != PADDING])

    def claim_commonest(self, number: int) -> NDArray[np.bool_]:
        """[V]: as many tokens as a baseline claims."""
        claimed = np.zeros(len(self.holding), np.bool_)
        claimed[self.order[:number]] = True
        return claimed


def draw_texts(texts: Tokens, number: int, rng: np.random.Generator, end: int = PADDING) -> list[tuple[int, ...]]:
    """As many different auxiliary texts [N, T], or all there are, in random order."""
    return [strip(texts[i], end) for i in rng.permutation(len(texts))[:number]]


def align_texts(claimed: Sequence[int], true: Sequence[int]) -> list[tuple[int, Mark]]:
    """The claim's tokens with their marks, and the true ones that it misses where they belong.

    Right: the same token at the same position. Elsewhere: a token that the true text has and that no other
    claimed one stands for. Missed ones stand at the end, in the order of the true text.
    """
    left = Counter(true)
    marks: list[Mark] = ["wrong"] * len(claimed)
    for i, token in enumerate(claimed):
        if i < len(true) and true[i] == token:
            marks[i] = "right"
            left[token] -= 1
    for i, token in enumerate(claimed):
        if marks[i] == "wrong" and left[token] > 0:
            marks[i] = "elsewhere"
            left[token] -= 1
    found = list(zip(claimed, marks, strict=True))
    for i, token in enumerate(true):
        if (i >= len(claimed) or claimed[i] != token) and left[token] > 0:
            found.append((token, "missed"))
            left[token] -= 1
    return found


def mark_claimed(true: Sequence[int], claimed: NDArray[np.bool_]) -> list[tuple[int, Mark]]:
    """The words of a true text where only a set of tokens [V] is claimed: right elsewhere, or missed."""
    return [(t, "elsewhere" if t < len(claimed) and claimed[t] else "missed") for t in true]


def write_words(ids: Iterable[int], schema: Schema | None) -> tuple[str, ...]:
    """Words of token ids; one that is no part of the word before begins with a space. "#12" without a schema."""
    found = list[str]()
    for i in ids:
        piece = schema.pieces[i] if schema is not None and i < len(schema.pieces) else f"#{i}"
        found.append(piece[2:] if piece.startswith("##") and len(piece) > 2 else f" {piece}")
    return tuple(found)


def write_pair(
    name: str, true: Sequence[int], marked: Sequence[tuple[int, Mark]], schema: Schema | None
) -> TextPair:
    """A true text above what was claimed of it, in words."""
    words = write_words([token for token, _ in marked], schema)
    return TextPair(
        name=name,
        original=write_words(true, schema),
        claimed=tuple((word, mark) for word, (_, mark) in zip(words, marked, strict=True)),
    )
