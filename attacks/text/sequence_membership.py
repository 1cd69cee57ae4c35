"""Membership by what a language model makes of a text's tokens: their loss, the least likely of them, or both
beside another model's."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Effort, Examples, Floats, Knowledge
from fedaudit.attacks.evaluation.model_membership import CARD as MODELS
from fedaudit.attacks.evaluation.model_membership import ModelMembership, Scorer
from fedaudit.attacks.evaluation.scores import Mask, score_asked
from fedaudit.attacks.evaluation.targets import GLOBAL, Target
from fedaudit.attacks.text._language import Values, average_lowest, predicts_tokens, score_tokens
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("sequence_loss", "sequence_min_k", "sequence_reference")
CARD = replace(
    MODELS,
    needs=("next tokens",),
    learns="whether a given text was trained on: by anybody, from the global model that every client and user "
    "gets; by one client, from its upload",
    does_not_show="membership to a stronger adversary (other rounds, shadow models, texts put in on purpose); an "
    "average near chance hides the few texts that are exposed",
    remedy="train with dp_sgd for a stated epsilon, with fewer epochs and copies of a text; aggregate uploads "
    "securely, so that no single one is seen",
    effort=Effort(seconds=60, grows=("clients", "rounds")),  # a whole network is run, however little is trained
)


class SequenceMembership(ModelMembership):
    """Base class: a subclass writes `rate`."""

    @abstractmethod
    def rate(self, log_probabilities: Values) -> Values:
        """[N, T] of each text's tokens, NaN for padding -> [N], higher for members."""

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture

        def score(candidates: Examples, asked: Mask) -> Floats:
            texts = candidates.x.astype(np.int64)
            return score_asked(
                queried, asked, lambda t, rows: self.rate(score_tokens(architecture(t.weights), texts[rows]))
            )

        return score

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := super().not_applicable(view, knowledge):
            return reason
        return explain_network(view, knowledge)


def explain_network(view: Sequence[Artifact], knowledge: Knowledge) -> str:
    """Why models here are no language models, as a sentence; empty where they are."""
    shape = knowledge.shape
    if len(shape) != 1 or (knowledge.auxiliary and np.asarray(knowledge.auxiliary.x).dtype.kind not in "iu"):
        return "it reads texts of tokens, and examples here have another shape"
    model = next(a for a in view if a.kind == "global_model")
    if not predicts_tokens(knowledge.granted_architecture(model.payload).module(), int(shape[0])):
        return "the network predicts a text's class, and no tokens"
    return ""


class SequenceLoss(SequenceMembership):
    """Sequence loss: texts whose tokens a model finds likely were trained on.

    Yeom, Giacomelli, Fredrikson, Jha, CSF 2018, arXiv:1709.01604, adversary 1; the mean over tokens, so that long
    texts and short ones compare.
    """

    card = replace(CARD, title="Membership from a text's loss", source="Yeom et al., CSF 2018, adversary 1")

    def rate(self, log_probabilities: Values) -> Values:
        return average_tokens(log_probabilities)


class SequenceMinK(SequenceMembership):
    """Min-K%: a text was trained on where even its least likely tokens are not that unlikely.

    Shi et al., ICLR 2024, arXiv:2310.16789, eq. 1.
    """

    card = replace(CARD, title="Membership from a text's least likely words", source="arXiv:2310.16789, eq. 1")

    @settings
    class Config(ModelMembership.Config):
        share: PositiveShare = Field(default=0.2, description="of a text's tokens, the least likely")

    def rate(self, log_probabilities: Values) -> Values:
        return average_lowest(log_probabilities, self.config.share)


class SequenceReference(SequenceMembership):
    """Reference: a text was trained on where a model finds it likelier than the model that training began with.

    Carlini et al., Extracting Training Data from Large Language Models, USENIX Security 2021, arXiv:2012.07805,
    sec. 5.2 (comparing with another model), with the earliest model that was sent in the place of a public one.
    """

    card = replace(
        CARD, title="Membership beside the first model", source="arXiv:2012.07805, sec. 5.2", rounds="all"
    )

    def targets(self, view: Sequence[Artifact], known: Knowledge, rng: np.random.Generator) -> list[Target]:
        """Without the model that others are compared with."""
        found = super().targets(view, known, rng)
        first = _find_first(found)
        return [t for t in found if first is None or t.model != GLOBAL or t.round > first.round]

    def scorer(self, queried: Sequence[Target], knowledge: Knowledge, rng: np.random.Generator) -> Scorer:
        architecture = knowledge.granted_architecture
        base = min((t for t in queried if t.start), key=lambda t: t.round).start

        def score(candidates: Examples, asked: Mask) -> Floats:
            texts = candidates.x.astype(np.int64)
            before = average_tokens(score_tokens(architecture(base), texts))
            return score_asked(
                queried,
                asked,
                lambda t, rows: self.rate(score_tokens(architecture(t.weights), texts[rows])) - before[rows],
            )

        return score

    def rate(self, log_probabilities: Values) -> Values:
        return average_tokens(log_probabilities)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := super().not_applicable(view, knowledge):
            return reason
        found = self.targets(view, knowledge, np.random.default_rng(0))
        return "" if any(t.start for t in found) else "no model before training was recorded to compare with"


def _find_first(found: Sequence[Target]) -> Target | None:
    """The earliest of the global models."""
    return min((t for t in found if t.model == GLOBAL), key=lambda t: t.round, default=None)


def average_tokens(log_probabilities: Values) -> Values:
    """[N, T] with NaN for padding -> [N]; 0 for a text without a token that is predicted."""
    known = np.isfinite(log_probabilities)
    return np.asarray(np.where(known, log_probabilities, 0.0).sum(axis=1) / np.maximum(1, known.sum(axis=1)))
