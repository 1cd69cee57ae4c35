"""RMIA: does an image gain more from the model than other images of the population do?

Zarifzadeh, Liu, Shokri. Low-Cost High-Power Membership Inference Attacks. ICML 2024,
arXiv:2312.03262. The score is the share of population images z with

    [p(x) / P(x)] / [p(z) / P(z)] > gamma,    P = ((1 + a) mean_out + (1 - a)) / 2

where p is the audited model's probability of the true class, or e to how it fits an example of another task, and
mean_out that of reference models not trained on the image (offline form). Works with few references. Here z is of
x's class, since candidates are compared within classes, and equal shares keep the order of p(x) / P(x).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Effort, Examples, Floats, Knowledge
from fedaudit.attacks.evaluation.model_membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.evaluation.scores import Mask, likelihood_ratio, measure_fit, rmia, score_outputs
from fedaudit.attacks.evaluation.targets import Target
from fedaudit.attacks.models._shadows import lacking, shadows
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import ThreatModel


class Rmia(ModelMembership):
    card = replace(
        CARD,
        title="Membership by pairwise likelihood ratios (RMIA)",
        source="Zarifzadeh, Liu, Shokri, ICML 2024, eq. 4 and 10",
        threat=ThreatModel(position=CARD.threat.position, knows=frozenset({"architecture", "auxiliary_data"})),
        effort=Effort(
            seconds=4, grows=("network", "auxiliary"), examples=20, beside=0.5, settings=("references", "epochs")
        ),
    )

    on_accelerator = "shadow models side by side"

    @settings
    class Config(ModelMembership.Config):
        references: int = Field(
            default=4, ge=2, multiple_of=2, description="reference models of each start, an even number"
        )
        epochs: AtLeastOne = Field(
            default=20, description="epochs of reference models that imitate the global model"
        )
        gamma: Positive = Field(
            default=1.0, description="ratio from which an image gains more than another of the population"
        )
        a: Share = Field(
            default=0.3,
            description="how much the references know of P, from nothing (0) to all: P is their mean (1)",
        )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture, aux = knowledge.granted_architecture, knowledge.granted_auxiliary
        settings, seed, task = self.config, int(rng.integers(2**40)), knowledge.task

        def score(candidates: Examples, asked: Mask) -> Floats:
            both = Examples.join([candidates, aux])
            population = np.ones((len(queried), len(aux)), bool)
            where = np.concatenate([asked, population], axis=1)
            p = np.exp(score_outputs(queried, architecture, both, where, partial(measure_fit, task)))
            number = len(candidates)
            found = np.zeros((len(queried), number))
            for s in shadows(
                queried, knowledge, aux, both.x, count=settings.references, epochs=settings.epochs, seed=seed
            ):
                theirs = np.exp(measure_fit(task, s.logits, both.wanted))
                theirs[:, number:][s.inside] = np.nan  # of models that were trained on it
                for label in np.unique(candidates.y):
                    x = np.flatnonzero(candidates.y == label)
                    same = np.flatnonzero(aux.y == label)
                    z = number + (same if len(same) else np.arange(len(aux)))
                    for row in s.rows:
                        found[row, x] = rank_ratios(
                            p[row, x], theirs[:, x], p[row, z], theirs[:, z], settings.a, settings.gamma
                        )
            return found

        return score

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return lacking(knowledge) or super().not_applicable(view, knowledge)


def rank_ratios(p: Floats, outs: Floats, p_z: Floats, outs_z: Floats, a: float, gamma: float) -> Floats:
    """RMIA's share, [N], where equal shares keep the order of the ratio: below one z in all."""
    ratio = likelihood_ratio(p, outs, a)
    return rmia(p, outs, p_z, outs_z, a, gamma) + ratio / (1 + ratio) / (2 * len(p_z))
