"""Ridge inversion of activations: images from what the first layers make of them, by linear regression.

Hoerl, Kennard. Ridge Regression. Technometrics 12(1), 1970. Regularised least squares from standardised
activations to pixels, fitted on auxiliary images run through the very layers that made the activations: of a
dense layer with ReLU little more is needed, since it is linear wherever it is not 0. Fitted anew for each set
of weights. Where
clients noise what they send, it is fitted on activations that are noised alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Effort, Knowledge
from fedaudit.attacks.batches._inversion import READS, ActivationInversion
from fedaudit.attacks.batches._running import imitate_noise, run_first_layers
from fedaudit.attacks.evaluation.batch_readings import Batch
from fedaudit.attacks.evaluation.prototype_inversion import Standard
from fedaudit.attacks.modality.images import to_rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


class ActivationRidge(ActivationInversion):
    card = Card(
        title="Ridge inversion of activations",
        source="Hoerl, Kennard, Technometrics 1970; regression from activations to pixels",
        aim=Aim.INVERSION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.SMASHED,),
        also_reads=READS,
        aids=READS,
        control="activations",
        learns="each image of a batch, from what the client sends of it",
        does_not_show="what a server finds that does not know the first layers, nor what another decoder adds",
        remedy="cut the network later, or clip and noise activations with a stated epsilon",
        effort=Effort(seconds=3, grows=("pixels", "clients")),
    )

    @settings
    class Config(ActivationInversion.Config):
        penalty: Positive = Field(
            default=1.0, description="lambda: ridge penalty on standardised activations; larger fits noisy ones"
        )

    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        from sklearn.linear_model import Ridge as Regression

        assert knowledge.auxiliary is not None
        aux = knowledge.auxiliary.x
        pixels, found = to_rows(aux).astype(np.float64), []
        for group in groups:
            sent = np.concatenate([b.activations for b in group])
            z = imitate_noise(run_first_layers(group[0].weights, aux, knowledge), sent, knowledge, rng)
            scale = Standard(z)
            fit = Regression(alpha=self.config.penalty).fit(scale(z), pixels)
            images = [fit.predict(scale(b.activations)) for b in group]
            found.append([x.reshape(-1, *knowledge.shape) for x in images])
        return found
