"""LiRA: is the model's confidence on an image that of models trained with it, or without it?

Carlini, Chien, Nasr, Song, Terzis, Tramer. Membership Inference Attacks From First Principles. IEEE
S&P 2022, arXiv:2112.03570, algorithm 1 (online) and sec. V.C (offline). With phi = ln(p / (1 - p)), and how
models fit an example (measure_fit) where there are no classes:

    online   ln N(phi; mu_in, s_in) - ln N(phi; mu_out, s_out)    offline   (phi - mu_out) / s_out

Offline, shadow models are trained on auxiliary images alone, once for any image queried.
Online, the candidates are put into half of them, which is stronger and has to be done anew for other
candidates. Below 64 shadow models the deviations are shared by all images, as the paper advises.
One query an image; the paper's augmented queries are left out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Examples, Floats, Knowledge
from fedaudit.attacks.evaluation.model_membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.evaluation.scores import (
    Mask,
    lira_offline,
    lira_online,
    measure_fit,
    scaled_logit,
    score_outputs,
)
from fedaudit.attacks.evaluation.targets import Target
from fedaudit.attacks.models._shadows import lacking, shadows
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import ThreatModel

MANY = 64  # shadow models from which on every image has a deviation of its own


class Lira(ModelMembership):
    card = replace(
        CARD,
        title="Membership by likelihood ratio with shadow models (LiRA)",
        source="Carlini et al., IEEE S&P 2022, algorithm 1",
        threat=ThreatModel(position=CARD.threat.position, knows=frozenset({"architecture", "auxiliary_data"})),
        effort=Effort(
            seconds=10, grows=("network", "auxiliary"), examples=20, beside=0.5, settings=("shadows", "epochs")
        ),
    )

    on_accelerator = "shadow models side by side"

    @settings
    class Config(ModelMembership.Config):
        mode: Literal["offline", "online"] = Field(
            default="offline",
            description="shadow models trained without the candidates, or half of them with: stronger and dearer",
        )
        shadows: int = Field(
            default=16,
            ge=2,
            multiple_of=2,
            description="shadow models of each start, an even number; 64 and more are the paper's",
        )
        epochs: AtLeastOne = Field(
            default=20, description="epochs of shadow models that imitate the global model"
        )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture, aux = knowledge.granted_architecture, knowledge.granted_auxiliary
        settings, seed, task = self.config, int(rng.integers(2**40)), knowledge.task

        def rate(answers: Floats, labels: NDArray[Any]) -> Floats:
            if task is None or task.has_classes:
                return scaled_logit(answers, labels)
            return measure_fit(task, answers, labels)

        def score(candidates: Examples, asked: Mask) -> Floats:
            x, y = candidates.x, candidates.wanted
            pool = aux
            if settings.mode == "online":  # candidates first
                pool = Examples.join([candidates, aux])
            phi = score_outputs(queried, architecture, candidates, asked, rate)
            found = np.empty_like(phi)
            shared = settings.shadows < MANY
            for s in shadows(
                queried, knowledge, pool, x, count=settings.shadows, epochs=settings.epochs, seed=seed
            ):
                theirs = rate(s.logits, y)  # [K, N]
                if settings.mode == "offline":
                    found[s.rows] = lira_offline(phi[s.rows], theirs, shared)
                    continue
                inside = s.inside[:, : len(y)]
                ins, outs = np.where(inside, theirs, np.nan), np.where(inside, np.nan, theirs)
                found[s.rows] = lira_online(phi[s.rows], ins, outs, shared)
            return found

        return score

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return lacking(knowledge) or super().not_applicable(view, knowledge)
