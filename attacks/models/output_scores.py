"""Membership by what a model answers: its loss, its confidence, or its entropy on an image."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats, Knowledge
from fedaudit.attacks.evaluation.model_membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.evaluation.scores import measure_fit, modified_entropy, scaled_logit, score_outputs
from fedaudit.attacks.evaluation.targets import Target

if TYPE_CHECKING:
    from fedaudit.fl.runtime.task import Task

PLUGINS = ("confidence", "entropy", "loss_threshold")


class OutputMembership(ModelMembership):
    """Base class: a subclass writes `rate`."""

    @abstractmethod
    def rate(self, answers: Floats, labels: NDArray[Any], task: "Task | None" = None) -> Floats:
        """What a model answers, [N, width], and labels [N, ...] -> [N], higher for members."""

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture, rate = knowledge.granted_architecture, partial(self.rate, task=knowledge.task)
        return lambda candidates, asked: score_outputs(queried, architecture, candidates, asked, rate)


class LossThreshold(OutputMembership):
    """Loss threshold: examples that a model has a small loss on were trained on.

    Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1; here as a score, so that every
    threshold is tried: minus the loss of the task, which is the log probability of the true class where there
    are classes. Of survival, whose loss depends on who else is in a risk set, the share of pairs in order, in one
    risk set of members and non-members.
    """

    card = replace(CARD, title="Membership from a model's loss", source="Yeom et al., CSF 2018, adversary 1")

    def rate(self, answers: Floats, labels: NDArray[Any], task: "Task | None" = None) -> Floats:
        return measure_fit(task, answers, labels)


class Confidence(OutputMembership):
    """Confidence: a model is surer of what it was trained on, whatever label it learnt it under.

    Salem, Zhang, Humbert, Berrang, Fritz, Backes. ML-Leaks. NDSS 2019, arXiv:1806.01246, adversary 3: the
    largest posterior, which needs no label; here as ln(p / (1 - p)) of the likeliest class, without rounding
    p, as in LiRA. Losses of the true class take what was memorised under another label for a non-member.
    """

    card = replace(
        CARD,
        title="Membership from a model's confidence",
        source="Salem et al., NDSS 2019, adversary 3",
        needs=("classes",),
    )

    def rate(self, answers: Floats, labels: NDArray[Any], task: "Task | None" = None) -> Floats:
        return scaled_logit(answers, answers.argmax(axis=-1))


class Entropy(OutputMembership):
    """Modified entropy: a confident and right prediction means that the image was trained on.

    Song, Mittal, USENIX Security 2021, arXiv:2003.10595, eq. 8: entropy that grows with confidence in a
    wrong class. Their thresholds per class are not needed where classes are compared with themselves.
    """

    card = replace(
        CARD,
        title="Membership from a model's modified entropy",
        source="Song and Mittal, USENIX Security 2021, eq. 8",
        needs=("classes",),
    )

    def rate(self, answers: Floats, labels: NDArray[Any], task: "Task | None" = None) -> Floats:
        return -modified_entropy(answers, labels)
