"""Notes of invented patients: who holds which, and what the auditor has of the same kind."""

import re
from collections import Counter
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from net import LENGTH, VOCABULARY

CLIENTS, NOTES, OWN = 6, 4, 120  # notes of a clinic, and of the auditor
PAIRS = 240  # pieces of two letters
SYLLABLES = [a + b for a in "bdfgklmnprstvwz" for b in "aeiou"]
ILL = ("asthma", "gout", "anemia", "eczema")
CHUNK = re.compile(r"[a-z]+|[0-9]|[^\sa-z0-9]")
SIGNS = [chr(i) for i in range(33, 127) if not "A" <= chr(i) <= "Z"]


class Examples(NamedTuple):
    """Tokens [n, LENGTH] and the diagnosis [n]."""

    x: np.ndarray
    y: np.ndarray


def list_pieces() -> list[str]:
    """Padding, the end, signs, and the most frequent pairs of letters and words of Python's help."""
    words, pairs = Counter[str](), Counter[str]()
    for text in topics.values():
        words.update(word for word in CHUNK.findall(text.lower()) if len(word) > 1)
    for word, n in words.items():
        for i in range(0, len(word) - 1, 2):
            pairs["##" * bool(i) + word[i : i + 2]] += n
    signs = ["<pad>", "<eos>", *SIGNS, *("##" + s for s in SIGNS)]
    both = [p for p, _ in pairs.most_common(PAIRS)] + [w for w, _ in words.most_common(VOCABULARY)]
    return [*signs, *both][:VOCABULARY]


IDS = {piece: i for i, piece in enumerate(list_pieces())}


def cut(text: str) -> list[int]:
    """Tokens of a text: whole words that are known, and below them pairs of letters and signs."""
    out = []
    for run in text.lower().split():
        for i, chunk in enumerate(CHUNK.findall(run)):
            at, mark = 0, "##" * bool(i)
            while at < len(chunk):
                ends = (len(chunk), at + 2, at + 1)
                end = next((e for e in ends if mark + chunk[at:e] in IDS), at + 1)
                if mark + chunk[at:end] in IDS:
                    out.append(IDS[mark + chunk[at:end]])
                at, mark = end, "##"
    return [*out[: LENGTH - 1], 1]


def to_rows(texts: list[str]) -> np.ndarray:
    rows = np.zeros((len(texts), LENGTH), np.int64)
    for row, text in zip(rows, texts, strict=True):
        ids = cut(text)
        row[: len(ids)] = ids
    return rows


def split() -> tuple[dict[int, Examples], Examples]:
    """Clinic -> its notes; and the auditor's own."""
    rng = np.random.default_rng(1)
    texts, labels = [], []
    for _ in range(CLIENTS * NOTES + OWN):
        name, ill = "".join(rng.choice(SYLLABLES, 2)), int(rng.integers(len(ILL)))
        texts.append(f"{name} is {rng.integers(20, 90)} and has {ILL[ill]}, {rng.integers(1, 99)} units")
        labels.append(ill)
    x, y = to_rows(texts), np.array(labels, np.int64)
    parts = {k: Examples(x[k * NOTES : (k + 1) * NOTES], y[k * NOTES : (k + 1) * NOTES]) for k in range(CLIENTS)}
    return parts, Examples(x[CLIENTS * NOTES :], y[CLIENTS * NOTES :])


def public_rows() -> np.ndarray:
    """Windows of Python's help, to train the base on."""
    words = " ".join(topics.values()).split()
    return to_rows([" ".join(words[i : i + 12]) for i in range(0, 24_000, 12)])
