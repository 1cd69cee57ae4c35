"""Membership by what a model answers: its loss, its confidence, or its entropy on an image."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats, Knowledge
from fedaudit.attacks.evaluation.model_membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.evaluation.scores import log_probability, modified_entropy, scaled_logit, score_outputs
from fedaudit.attacks.evaluation.targets import Target

PLUGINS = ("confidence", "entropy", "loss_threshold")


class OutputMembership(ModelMembership):
    """Base class: a subclass writes `rate`."""

    @abstractmethod
    def rate(self, logits: Floats, y: NDArray[np.int64]) -> Floats:
        """What a model answers about images, [N, C], and their labels [N] -> [N], higher for members."""

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture
        return lambda candidates, asked: score_outputs(queried, architecture, candidates, asked, self.rate)


class LossThreshold(OutputMembership):
    """Loss threshold: images that a model has a small loss on were trained on.

    Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1; here as a score, the log
    probability of the true class, so that every threshold is tried.
    """

    card = replace(CARD, title="Membership from a model's loss", source="Yeom et al., CSF 2018, adversary 1")

    def rate(self, logits: Floats, y: NDArray[np.int64]) -> Floats:
        return log_probability(logits, y)


class Confidence(OutputMembership):
    """Confidence: a model is surer of what it was trained on, whatever label it learnt it under.

    Salem, Zhang, Humbert, Berrang, Fritz, Backes. ML-Leaks. NDSS 2019, arXiv:1806.01246, adversary 3: the
    largest posterior, which needs no label; here as ln(p / (1 - p)) of the likeliest class, without rounding
    p, as in LiRA. Losses of the true class take what was memorised under another label for a non-member.
    """

    card = replace(
        CARD, title="Membership from a model's confidence", source="Salem et al., NDSS 2019, adversary 3"
    )

    def rate(self, logits: Floats, y: NDArray[np.int64]) -> Floats:
        return scaled_logit(logits, logits.argmax(axis=-1))


class Entropy(OutputMembership):
    """Modified entropy: a confident and right prediction means that the image was trained on.

    Song, Mittal, USENIX Security 2021, arXiv:2003.10595, eq. 8: entropy that grows with confidence in a
    wrong class. Their thresholds per class are not needed where classes are compared with themselves.
    """

    card = replace(
        CARD,
        title="Membership from a model's modified entropy",
        source="Song and Mittal, USENIX Security 2021, eq. 8",
    )

    def rate(self, logits: Floats, y: NDArray[np.int64]) -> Floats:
        return -modified_entropy(logits, y)
