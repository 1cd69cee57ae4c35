"""Updates that a mechanism is asked with: short, long, of one number, of one array, and such as nobody sends."""

import numpy as np

from fedaudit.audit.plays.mechanism import Floats, Layout

LENGTHS = (0.2, 0.5, 0.9, 1.0, 1.2, 1.6, 2.2, 3.2, 5.0, 10.0, 30.0, 300.0, 3000.0)  # in clips
LONG = 30.0
MOST_ARRAYS = 12  # that are asked alone
SHARE = 10  # one number in so many is not zero in a sparse update


def make_updates(layout: Layout, clip: float) -> dict[str, Floats]:
    """Name -> a row of numbers."""
    rng = np.random.default_rng(1)
    size = layout.size
    one, last = np.zeros(size), np.zeros(size)
    one[int(rng.integers(size))] = last[-1] = 1
    sparse = rng.normal(size=size) * (rng.random(size) < 1 / SHARE)
    if not sparse.any():
        sparse[0] = 1.0
    dense = rng.normal(size=size)
    found = {"zero": np.zeros(size), "tiny": _stretch(dense, 1e-9 * clip)}
    found |= {f"{length:g} clips long": _stretch(dense, length * clip) for length in LENGTHS}
    others = {
        "another one": rng.normal(size=size),
        "one number": one,
        "the last number": last,
        "sparse": sparse,
        "all equal": np.ones(size),
        "heavy tails": rng.standard_t(1.5, size),
    }
    names = list(layout.parts)
    for name in [names[i] for i in sorted({*np.linspace(0, len(names) - 1, MOST_ARRAYS, dtype=int)})]:
        alone = np.zeros(size)
        part = layout.parts[name]
        alone[part] = rng.normal(size=part.stop - part.start)
        others[f"{name} alone"] = alone
    return found | {name: _stretch(row, LONG * clip) for name, row in others.items() if row.any()}


def make_odd(layout: Layout, clip: float) -> dict[str, Floats]:
    """Such as are no numbers."""
    row = _stretch(np.ones(layout.size), clip)
    found = {}
    for name, value in (("NaN", np.nan), ("infinite", np.inf)):
        found[name] = row.copy()
        found[name][0] = value
    return found


def _stretch(row: Floats, length: float) -> Floats:
    return row * (length / float(np.linalg.norm(row)))
