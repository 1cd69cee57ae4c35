"""Membership by what a model answers: its loss, its confidence, or its entropy on an image."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.attack import Floats, Images, Knowledge
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import log_probability, logits_of, modified_entropy, scaled_logit
from fedaudit.attacks.models._targets import Target

PLUGINS = ("confidence", "entropy", "loss_threshold")


class LossThreshold(ModelMembership):
    """Loss threshold: images that a model has a small loss on were trained on.

    Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1; here as a score, the log
    probability of the true class, so that every threshold is tried.
    """

    card = replace(CARD, title="Membership from a model's loss", source="Yeom et al., CSF 2018, adversary 1")

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Images) -> Floats:
            return log_probability(logits_of(queried, architecture, candidates.x), candidates.y)

        return score


class Confidence(ModelMembership):
    """Confidence: a model is surer of what it was trained on, whatever label it learnt it under.

    Salem, Zhang, Humbert, Berrang, Fritz, Backes. ML-Leaks. NDSS 2019, arXiv:1806.01246, adversary 3: the
    largest posterior, which needs no label; here as ln(p / (1 - p)) of the likeliest class, without rounding
    p, as in LiRA. Losses of the true class take what was memorised under another label for a non-member.
    """

    card = replace(
        CARD, title="Membership from a model's confidence", source="Salem et al., NDSS 2019, adversary 3"
    )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Images) -> Floats:
            logits = logits_of(queried, architecture, candidates.x)
            return np.stack([scaled_logit(z, z.argmax(axis=-1)) for z in logits])

        return score


class Entropy(ModelMembership):
    """Modified entropy: a confident and right prediction means that the image was trained on.

    Song, Mittal, USENIX Security 2021, arXiv:2003.10595, eq. 8: entropy that grows with confidence in a
    wrong class. Their thresholds per class are not needed where classes are compared with themselves.
    """

    card = replace(
        CARD,
        title="Membership from a model's modified entropy",
        source="Song and Mittal, USENIX Security 2021, eq. 8",
    )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Images) -> Floats:
            return -modified_entropy(logits_of(queried, architecture, candidates.x), candidates.y)

        return score
