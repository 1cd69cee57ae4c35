"""Membership by gradients: how an upload lies to the gradients of an image."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Effort, Floats, Images, Knowledge
from fedaudit.attacks.models._gradients import score_per_image
from fedaudit.attacks.models._membership import CARD, ModelMembership, Scorer
from fedaudit.attacks.models._scores import Mask
from fedaudit.attacks.models._targets import Target
from fedaudit.fl.kinds import Kind

PLUGINS = ("gradient_cosine", "update_norm")

Values = NDArray[np.float64]


class GradientCosine(ModelMembership):
    """Gradient cosine: an upload points along the descent directions of the images it was made with.

    The score is cos(-gradient of x's loss, w_k - w) at the model w that the client started from. Li, Li,
    Ribeiro, ICLR 2023, arXiv:2305.02301 (effective passive membership inference), sec. 4: in wide models
    gradients of different images are nearly orthogonal, so members stand out. They compare with the
    whole update of one round, as here.
    """

    card = replace(
        CARD,
        title="Membership from the direction of an update",
        source="Li, Li, Ribeiro, ICLR 2023, cosine attack",
        aids=(Kind.GLOBAL_MODEL, Kind.NUM_STEPS),  # where the update begins
        learns="whether a given image was in one client's training data, from its upload",
        effort=Effort(seconds=4, grows=("network", "clients")),
    )

    def applies_to(self, target: Target) -> bool:
        return bool(target.start)

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Images, _: Mask) -> Floats:  # a gradient is held against all
            return score_per_image(queried, architecture, candidates, cosine)

        return score


def cosine(products: Values, norms: Values, lengths: Values) -> Values:
    """[t, n] of products [t, n], squared gradient norms [n] and squared lengths of updates [t]."""
    return np.asarray(products / np.sqrt(norms * lengths[:, None] + 1e-24))


class UpdateNorm(GradientCosine):
    """Update norm: without a member's gradient an upload is shorter.

    The score is |g|^2 - |g - gradient of x|^2, with g the gradient that the upload shows. Li, Li, Ribeiro,
    ICLR 2023, arXiv:2305.02301, difference attack. They take the update of one step; over several its
    length tells more of the schedule than of the images, so here g is given the mean length of the
    candidates' gradients and keeps its direction.
    """

    card = replace(
        GradientCosine.card,
        title="Membership from the length of an update",
        source="Li, Li, Ribeiro, ICLR 2023, difference attack",
    )

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Images, _: Mask) -> Floats:  # a gradient is held against all
            return score_per_image(queried, architecture, candidates, difference)

        return score


def difference(products: Values, norms: Values, lengths: Values) -> Values:
    """2 <g, gradient> - |gradient|^2, [t, n], of products [t, n], norms [n] and lengths [t], squared.

    g points along the update and is as long as the mean gradient of the candidates.
    """
    direction = products / np.sqrt(lengths[:, None] + 1e-24)  # along the update, of unit length
    return np.asarray(2 * np.sqrt(norms.mean()) * direction - norms)
