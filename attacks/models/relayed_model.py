"""Relayed model: the next client of a relay queries the model it was handed about its predecessor's images.

Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1, as in
`loss_threshold`. GANDALF's relays (sec. 3.4) hand the weights of one client to one
other, before anything is averaged: a stronger exposure than FedAvg's, and to a peer. Members are the
images of the client that handed the model on. The model also holds those of the clients before it,
which what another client handed on tells just as well: that is the baseline.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.targets import Target, select_relays
from fedaudit.attacks.models.output_scores import LossThreshold
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position


class RelayedModel(LossThreshold):
    card = replace(
        LossThreshold.card,
        title="Membership of the client before, from a relayed model",
        threat=replace(LossThreshold.card.threat, position=Position.NEXT_CLIENT),
        requires=(Kind.RELAY_MODEL,),
        also_reads=(),
        aids=(),
        learns="whether a given example was among those of the client that handed the model on",
        remedy="average several clients' models before one client sees them; clip and noise what is handed "
        "on with a stated epsilon (noise: {mode: accounted}), or train with dp_sgd",
    )

    def targets(self, view: Sequence[Artifact], known: Knowledge, rng: np.random.Generator) -> list[Target]:
        return select_relays(view, rng, self.config.max_clients)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if super().not_applicable(view, knowledge):
            return "no client handed a model to another in the recorded rounds"
        return ""
