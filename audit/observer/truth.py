"""What the auditor knows and no attack does: which images are behind which artifact."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Images
from fl.artifact import SERVER, Artifact, Role
from fl.dataset import Arrays
from fl.population import Population


class SimulatedTruth:
    """Truth of a federation we ran. `groups` gives the images behind each replayed artifact."""

    def __init__(
        self, population: Population, artifacts: Mapping[str, Artifact], groups: Mapping[str, NDArray[np.int64]]
    ) -> None:
        self._population, self._artifacts, self._groups = population, artifacts, groups
        self.reference = images(population, population.reference)
        self.auxiliary = images(population, population.auxiliary)

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        """[n, C, H, W] training images of that class behind the artifact; all clients' for the server's."""
        index = self._groups.get(artifact)
        if index is None:
            sender = self._artifacts[artifact].sender
            assert sender == SERVER or sender.role == Role.CLIENT, f"nothing is known of {artifact}"
            parts = self._population.parts
            index = np.concatenate(parts) if sender.index is None else parts[sender.index]
        train = self._population.data.train
        chosen = index[train.y[index] == label]
        return np.asarray(train.x[chosen])

    def sent(self, artifact: str) -> Mapping[str, NDArray[Any]]:
        return self._artifacts[artifact].payload

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.asarray(self._population.counts[client])

    def client_images(self, client: int) -> Images:
        return images(self._population, self._population.parts[client])


def images(population: Population, index: NDArray[np.int64]) -> Images:
    taken: Arrays = population.data.train.take(index)
    return Images(x=taken.x, y=taken.y)


def shifted(images: Images) -> Images:
    """Auxiliary data of another distribution: mirrored, one pixel lower, darker and flatter.

    Deterministic, so that the only difference to the same-distribution attacker is the shift.
    """
    x = np.roll(images.x[..., ::-1], 1, axis=-2) * 0.7 + 0.1
    return Images(x=np.ascontiguousarray(x, dtype=np.float32), y=images.y)
