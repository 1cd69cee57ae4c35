"""Membership from Fisher diagonals: does the squared gradient of an image lie along what its client sent?

A diagonal is the mean of squared gradients of a client's examples at its model (Shoham et al., arXiv:1910.07796,
eq. 4), so with g(x) the gradient of an image's loss there, that of a member is one of the terms of the mean. The
score is cos(g(x)^2, F): after Li, Li, Ribeiro, ICLR 2023, arXiv:2305.02301, who hold an update against gradients
of images. Where outputs are drawn by the model (`labels: model` of FedCurv) no term is exactly a member's.

Claim: as in evaluation/client_membership.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Effort, Examples, Knowledge
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.client_membership import CARD, ClientMembership, UploadScorer, Values
from fedaudit.attacks.evaluation.example_gradients import Gradients
from fedaudit.attacks.evaluation.sources import sent_with
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind

CHUNK = 100  # images whose gradients are in memory at a time


class FisherMembership(ClientMembership):
    sent = "diagonal"
    card = replace(
        CARD,
        title="Membership from Fisher diagonals",
        needs=("numbers", "classes"),
        source="after Li, Li, Ribeiro, ICLR 2023, cosine attack, on what FedCurv sends (arXiv:1910.07796)",
        requires=(Kind.FISHER,),
        also_reads=(Kind.LOCAL_MODEL,),
        aids=(Kind.LOCAL_MODEL,),
        does_not_show="membership to an adversary that sums up several rounds; nor the classes that a client has",
        remedy="aggregate Fisher diagonals securely, or noise them with a stated epsilon",
        effort=Effort(seconds=2, grows=("network", "clients")),
    )

    def build_scorers(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Artifact, UploadScorer]]:
        return [
            (a, _Scorer(model.payload, a.payload, knowledge)) for a, model in _list_diagonals(view, knowledge)
        ]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _list_diagonals(view, knowledge):
            return "no client sends a Fisher diagonal together with the model it was taken at"
        return ""


class _Scorer:
    """How far the squared gradients of images at one client's model lie along a diagonal."""

    def __init__(
        self, weights: Mapping[str, NDArray[Any]], sent: Mapping[str, NDArray[Any]], knowledge: Knowledge
    ) -> None:
        assert knowledge.architecture is not None, "granted"
        self._gradients = Gradients(knowledge.architecture(weights).module())
        diagonal = {k.removeprefix("u/"): v for k, v in sent.items() if k.startswith("u/")}
        self._fisher = self._gradients.flatten(diagonal).astype(np.float64)

    def __call__(self, images: Examples) -> Values:
        parts = [self._score(s) for s in self._square(images)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def plant(self, images: Examples) -> "_Scorer":
        """The same model with the diagonal of these images."""
        made = object.__new__(_Scorer)
        made._gradients = self._gradients
        made._fisher = np.concatenate(self._square(images)).mean(axis=0)
        return made

    def _square(self, images: Examples) -> list[Values]:
        """Squared gradients [n, P], chunk by chunk."""
        cuts = range(0, len(images), CHUNK)
        return [
            self._gradients(images.x[i : i + CHUNK], images.y[i : i + CHUNK]).astype(np.float64) ** 2
            for i in cuts
        ]

    def _score(self, squares: Values) -> Values:
        lengths = np.sqrt((squares**2).sum(axis=1) * (self._fisher**2).sum())
        return np.asarray(squares @ self._fisher / np.maximum(lengths, np.finfo(np.float64).tiny))


def _list_diagonals(view: Sequence[Artifact], knowledge: Knowledge) -> list[tuple[Artifact, Artifact]]:
    """Clients' diagonals, each with the model that came with it."""
    view, found = index(view), []
    for a in view.select(kind=Kind.FISHER, origin="recorded"):
        model = sent_with(a, Kind.LOCAL_MODEL, view)
        if a.sender.role != Role.CLIENT or a.sender.index is None or model is None:
            continue
        if knowledge.architecture is not None and all(np.isfinite(v).all() for v in a.payload.values()):
            found.append((a, model))
    return found
