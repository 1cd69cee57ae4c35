"""Digits of scikit-learn for four sites, two classes and a different number each, and some that no site has."""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

SITES, OWN = ("site-1", "observer-7", "dataserver", "site-4"), 400


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    x, y = (digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64)
    order = np.random.default_rng(1).permutation(len(y))
    own, rest = order[:OWN], order[OWN:]
    for site, name in enumerate(SITES):
        rows = rest[np.isin(y[rest], [2 * site, 2 * site + 1])][: 100 + 10 * site]
        np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows])
    np.savez(folder / "own.npz", x=x[own], y=y[own])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
