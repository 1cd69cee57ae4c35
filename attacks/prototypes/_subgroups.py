"""Subgroups of a class that an adversary can name beforehand, from auxiliary images alone.

`cluster`: the smallest of k clusters of the class's auxiliary images (k-means, Lloyd 1982), as a style,
a site or a scanner would make one. `brightness`: the brightest fifth, by mean intensity.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Property = Literal["cluster", "brightness"]
BRIGHTEST = 0.8  # quantile above which an image belongs to the bright subgroup


@dataclass(frozen=True, kw_only=True)
class Subgroup:
    """A rule that says of any image of one class whether it is in the subgroup."""

    centres: Floats  # [k, pixels]; empty for brightness
    chosen: int  # the cluster
    least: float  # mean intensity

    def holds(self, images: Floats) -> NDArray[np.bool_]:
        """[m, C, H, W] -> [m]."""
        flat = images.reshape(len(images), -1).astype(np.float64)
        if not len(self.centres):
            return np.asarray(flat.mean(axis=1) > self.least)
        distance = ((flat[:, None] - self.centres[None]) ** 2).sum(axis=2)
        return np.asarray(distance.argmin(axis=1) == self.chosen)


def find(images: Floats, kind: Property, clusters: int, rng: np.random.Generator) -> Subgroup:
    """The subgroup of a class, from its auxiliary images [m, C, H, W]."""
    from sklearn.cluster import KMeans

    flat = images.reshape(len(images), -1).astype(np.float64)
    if kind == "brightness":
        level = float(np.quantile(flat.mean(axis=1), BRIGHTEST))
        return Subgroup(centres=np.zeros((0, flat.shape[1])), chosen=0, least=level)
    seed = int(rng.integers(2**31))
    found = KMeans(clusters, n_init=5, random_state=seed).fit(flat)
    size = np.bincount(found.labels_, minlength=clusters)
    return Subgroup(centres=found.cluster_centers_, chosen=int(size.argmin()), least=0.0)
