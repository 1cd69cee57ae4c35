"""Free riders that send the shared model's last change with noise: what is left without that change is noise.

Lin, Du, Liu. Free-riders in Federated Learning: Attacks and Defenses. 2019. arXiv:1911.12560. Of an update the
part that lies along the last two changes of the shared model is taken away. What training leaves are sums of few
products, the same directions again and again; independent noise on every weight, of whatever size and law, goes
in all directions alike. With e the squared singular values of a weight matrix [m, n] of the rest,

    evenness = (sum e)^2 / sum e^2  *  (m + n + 1) / (m n)

is 1 in expectation for independent numbers of one size, and small for what was trained. Nothing left is a copy:
1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import TRAINED, Kind

Weights = Mapping[str, NDArray[Any]]

EXACT = 1e-4  # of an update's length: less than this left is a copy, rounded
NARROW = 4  # rows or columns, below which a matrix says nothing
LEAST = 0.5  # evenness that noise has at least
TIMES = 1.5  # beyond that of any honest client of the auditor's


@dataclass(frozen=True)
class LastChanges:
    """The shared models that were recorded, by round."""

    models: Mapping[int, Weights]

    @classmethod
    def from_broadcasts(cls, recorded: Sequence[Artifact]) -> "LastChanges":
        """From broadcasts; one a round."""
        return cls({a.round: a.payload for a in recorded if a.kind == Kind.GLOBAL_MODEL})

    def measure(self, upload: Artifact) -> float | None:
        """The evenness of an upload without the last changes; None where the models around it are not known."""
        now, before = self.models.get(upload.round), self.models.get(upload.round - 1)
        if upload.kind not in TRAINED or now is None or before is None:
            return None
        names = [k for k, v in now.items() if k in upload.payload and np.issubdtype(v.dtype, np.floating)]
        change = subtract(upload.payload, now, names)
        earlier = self.models.get(upload.round - 2)
        last = [subtract(now, before, names)]
        last += [subtract(before, earlier, names)] if earlier is not None else []
        return measure_evenness(change, last)

    def forge(self, upload: Artifact, noise: float, rng: np.random.Generator) -> Weights | None:
        """What a free rider would send in place of an upload: the last change and noise of its deviation."""
        now, before = self.models.get(upload.round), self.models.get(upload.round - 1)
        if now is None or before is None:
            return None
        names = [k for k, v in now.items() if np.issubdtype(v.dtype, np.floating)]
        last = subtract(now, before, names)
        size = noise * float(np.std(np.concatenate([v.ravel() for v in last.values()])))
        return {
            k: (v + last[k] + size * rng.standard_normal(v.shape)).astype(v.dtype) if k in last else v
            for k, v in now.items()
        }


def subtract(a: Weights, b: Weights, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """a - b, of these arrays."""
    return {k: np.asarray(a[k], np.float64) - np.asarray(b[k], np.float64) for k in names}


def measure_evenness(change: Weights, last: Sequence[Weights]) -> float | None:
    """How evenly a change without its part along `last` goes in all directions; None where no matrix is wide."""
    whole = np.concatenate([np.ravel(v) for v in change.values()]).astype(np.float64)
    length = float(np.linalg.norm(whole))
    if not length:
        return None
    along = np.stack([np.concatenate([np.ravel(v[k]) for k in change]) for v in last], 1).astype(np.float64)
    rest = whole - along @ np.linalg.lstsq(along, whole, rcond=None)[0]
    if float(np.linalg.norm(rest)) <= EXACT * length:
        return 1.0
    found, sizes, at = [], [], 0
    for v in change.values():
        part = rest[at : at + v.size].reshape(len(v), -1) if v.ndim > 1 else np.zeros((1, 1))
        at += v.size
        if min(part.shape) < NARROW or not part.any():
            continue
        m, n = part.shape
        energy = np.linalg.svd(part, compute_uv=False) ** 2
        found.append(energy.sum() ** 2 / (energy**2).sum() * (m + n + 1) / (m * n))
        sizes.append(v.size)
    return float(np.average(found, weights=sizes)) if found else None


def is_copy(evenness: float | None, honest: Sequence[float]) -> bool:
    """Whether an evenness is that of noise, beside those of honest clients."""
    return evenness is not None and bool(honest) and evenness > max(LEAST, TIMES * max(honest))
