"""Ridge inversion: images from prototypes by linear regression, in closed form.

Regularised least squares from standardised features to pixels, fitted on auxiliary images run
through the client's own extractor. A linear map commutes with averaging, so on a prototype it
estimates the mean of the members' images better than a neural decoder does, in a second. It
answers the objection that only a strong generative prior made the images.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Effort, Extractor, Knowledge
from fedaudit.attacks.evaluation.prototype_inversion import (
    ALSO_READS,
    REQUIRES,
    InversionTask,
    PrototypeInversion,
    Standard,
)
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


class Ridge(PrototypeInversion):
    card = Card(
        title="Ridge inversion of prototypes",
        source="Hoerl, Kennard, Technometrics 1970; regression from features to pixels",
        aim=Aim.INVERSION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=REQUIRES,
        also_reads=(*ALSO_READS, Kind.AGGREGATE),
        aids=ALSO_READS,
        control="prototypes",
        rounds="all",
        learns="images a client trained on, or their mean where several stand behind a prototype",
        does_not_show="what a non-linear decoder adds, nor what an attacker without auxiliary data gets",
        remedy="release no prototype of few samples (minimum count), or clip and noise prototypes",
        effort=Effort(seconds=3, grows=("network", "replays"), examples=500),
    )

    @settings
    class Config(PrototypeInversion.Config):
        max_clients: AtLeastOne = Field(
            default=1000,
            description="models to attack, at most; those with replays and the smallest classes first",
        )
        penalty: Positive = Field(
            default=50.0,
            description="lambda: ridge penalty on standardised features; 1e-3 is nearly plain least squares",
        )

    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        from sklearn.linear_model import Ridge as Regression

        aux = knowledge.granted_auxiliary.x
        pixels = to_rows(aux).astype(np.float64)
        images = []
        for task in tasks:
            features = task.extractor.features(aux)
            scale = Standard(features)
            fit = Regression(alpha=self.config.penalty).fit(scale(features), pixels)
            found = fit.predict(scale(task.features))
            images.append(found.reshape(-1, *knowledge.shape))
        return images
