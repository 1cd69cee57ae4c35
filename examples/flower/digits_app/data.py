"""Digits of scikit-learn: who holds which, and what the auditor has of the same kind."""

import numpy as np
from sklearn.datasets import load_digits

CLIENTS = 8
OWN = 700  # images that no client has: the auditor's own


def split() -> tuple[dict[int, tuple[np.ndarray, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """Partition -> images [n, 1, 8, 8] in [0, 1] and labels, two classes each; and the auditor's own."""
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
        parts[k] = (x[index], y[index])
    return parts, (x[own], y[own])
