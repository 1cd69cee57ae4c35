"""Digits of scikit-learn: who holds which, and what the auditor has of the same kind."""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

CLIENTS = 8
OWN = 700  # images that no client has: the auditor's own
CANARY = 64  # of them, those that the auditor's own client trains on, where one takes part


class Examples(NamedTuple):
    """Images [n, 1, 8, 8] in [0, 1] and labels [n]."""

    x: np.ndarray
    y: np.ndarray


def split(path: str = "") -> tuple[dict[int, Examples], Examples]:
    """Partition -> its examples, two classes each; and the auditor's own. A file `path` says another split."""
    if path:
        with np.load(path) as file:
            parts = {k: Examples(file[f"x{k}"], file[f"y{k}"]) for k in range(CLIENTS)}
            return parts, Examples(file["own_x"], file["own_y"])
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64)
    order = np.random.default_rng(1).permutation(len(y))
    own, rest = order[:OWN], order[OWN:]
    classes = {k: {(3 * k) % 10, (3 * k + 4) % 10} for k in range(CLIENTS)}
    parts = {}
    for k, wanted in classes.items():
        rows = []
        for c in sorted(wanted):
            owners = [j for j in classes if c in classes[j]]
            rows.append(np.array_split(rest[y[rest] == c], len(owners))[owners.index(k)])
        index = np.concatenate(rows)
        parts[k] = Examples(x[index], y[index])
    return parts, Examples(x[own], y[own])


def canary(path: str = "") -> tuple[Examples, Examples]:
    """What the auditor's own client trains on, and what remains of the auditor's own: nobody's."""
    own = split(path)[1]
    return Examples(own.x[:CANARY], own.y[:CANARY]), Examples(own.x[CANARY:], own.y[CANARY:])
