"""Modified entropy: a confident and right prediction means that the image was trained on.

Song, Mittal, USENIX Security 2021, arXiv:2003.10595, eq. 8: entropy that grows with confidence in a
wrong class. Their thresholds per class are not needed where classes are compared with themselves.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedaudit.attacks.attack import Floats, Images, Knowledge
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import logits_of, modified_entropy
from fedaudit.attacks.models._targets import Target


class Entropy(ModelMembership):
    card = replace(
        CARD,
        title="Membership from a model's modified entropy",
        source="Song and Mittal, USENIX Security 2021, eq. 8",
    )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.architecture
        assert architecture is not None, "granted by the threat model"

        def score(candidates: Images) -> Floats:
            return -modified_entropy(logits_of(queried, architecture, candidates.x), candidates.y)

        return score
