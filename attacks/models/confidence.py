"""Confidence: a model is surer of what it was trained on, whatever label it learnt it under.

Salem, Zhang, Humbert, Berrang, Fritz, Backes. ML-Leaks. NDSS 2019, arXiv:1806.01246, adversary 3: the largest
posterior, which needs no label; here as ln(p / (1 - p)) of the likeliest class, without rounding p, as in LiRA.
Losses of the true class take what was memorised under another label for a non-member.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.attack import Floats, Images, Knowledge
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import logits_of, scaled_logit
from fedaudit.attacks.models._targets import Target


class Confidence(ModelMembership):
    card = replace(
        CARD, title="Membership from a model's confidence", source="Salem et al., NDSS 2019, adversary 3"
    )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.architecture
        assert architecture is not None, "granted by the threat model"

        def score(candidates: Images) -> Floats:
            logits = logits_of(queried, architecture, candidates.x)
            return np.stack([scaled_logit(z, z.argmax(axis=-1)) for z in logits])

        return score
