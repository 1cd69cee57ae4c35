"""Notes of invented patients: who holds which, and what the auditor has of the same kind."""

import re
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from net import LENGTH, VOCABULARY

CLIENTS, NOTES, OWN = 6, 4, 120  # notes of a clinic, and of the auditor
SYLLABLES = ["ba", "do", "fa", "ge", "ka", "lo", "mi", "ne", "po", "ra", "se", "tu", "va", "we", "zo"]
ILL = ("asthma", "gout", "anemia", "eczema")
CHUNK = re.compile(r"[a-z]+|[0-9]|[^\sa-z0-9]")
SIGNS = [chr(i) for i in range(33, 127) if not "A" <= chr(i) <= "Z"]


class Examples(NamedTuple):
    """Tokens [n, LENGTH] and the diagnosis [n]."""

    x: np.ndarray
    y: np.ndarray


def list_pieces() -> list[str]:
    """Padding, the end, every sign alone and inside of a word, and the most frequent words of Python's help."""
    counted: dict[str, int] = {}
    for text in topics.values():
        for word in CHUNK.findall(text.lower()):
            if len(word) > 1:
                counted[word] = counted.get(word, 0) + 1
    first = ["<pad>", "<eos>", *SIGNS, *("##" + s for s in SIGNS)]
    words = sorted(counted, key=lambda w: (-counted[w], w))
    return [*first, *words][:VOCABULARY]


IDS = {piece: i for i, piece in enumerate(list_pieces())}


def cut(text: str) -> list[int]:
    """Tokens of a text: whole words that are known, and signs one by one."""
    out = []
    for run in text.lower().split():
        for i, chunk in enumerate(CHUNK.findall(run)):
            whole = "##" * bool(i) + chunk
            if whole in IDS:
                out.append(IDS[whole])
            else:
                out += [IDS[("##" if i or j else "") + s] for j, s in enumerate(chunk) if s in IDS]
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
