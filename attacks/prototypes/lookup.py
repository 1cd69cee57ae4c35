"""Look-up: the auxiliary image whose features are nearest to the prototype.

The strongest attacker that generates nothing: whatever a decoder gains over it comes from more
than recognising a similar image. Distance: Euclidean on standardised features, among auxiliary
images of the prototype's class (its label is sent with it), or among all where there are none.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Extractor, Knowledge
from fedaudit.attacks.evaluation.covariance import shrink_covariance
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, PrototypeInversion
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]


class Lookup(PrototypeInversion):
    card = replace(
        Ridge.card,
        title="Nearest auxiliary image of prototypes",
        source="nearest-neighbour baseline (Fix, Hodges, 1951) in feature space",
        learns="an image that resembles one a client trained on",
        does_not_show="details that no auxiliary image has; compare with a decoder",
        effort=Effort(seconds=3, grows=("network", "replays"), examples=500),
    )

    @settings
    class Config(PrototypeInversion.Config):
        max_clients: AtLeastOne = Field(
            default=1000,
            description="models to attack, at most; those with replays and the smallest classes first",
        )

    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        aux = knowledge.granted_auxiliary
        images = []
        for task in tasks:
            features = task.extractor.features(aux.x).astype(np.float64)
            spread, axes = np.linalg.eigh(shrink_covariance(features))
            whiten = axes / np.sqrt(np.maximum(spread, 1e-6 * spread.mean()))  # dead units: no variance
            distance = scipy.spatial.distance.cdist(task.features @ whiten, features @ whiten)
            other = aux.y != task.labels[:, None]  # [k, aux]
            other[other.all(axis=1)] = False
            images.append(aux.x[np.where(other, np.inf, distance).argmin(axis=1)])
        return images
