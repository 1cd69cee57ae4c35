"""Loss threshold: images that a model has a small loss on were trained on.

Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1; here as a score, the log
probability of the true class, so that every threshold is tried.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.attack import Floats, Images, Knowledge
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import log_probability, logits_of
from fedaudit.attacks.models._targets import Target


class LossThreshold(ModelMembership):
    card = replace(CARD, title="Membership from a model's loss", source="Yeom et al., CSF 2018, adversary 1")

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.architecture
        assert architecture is not None, "granted by the threat model"

        def score(candidates: Images) -> Floats:
            return log_probability(logits_of(queried, architecture, candidates.x), candidates.y)

        return score
