"""Membership from Fisher diagonals: does the squared gradient of an image lie along what its client sent?

A diagonal is the mean of squared gradients of a client's examples at its model (Shoham et al., arXiv:1910.07796,
eq. 4), so with g(x) the gradient of an image's loss there, that of a member is one of the terms of the mean. The
score is cos(g(x)^2, F): after Li, Li, Ribeiro, ICLR 2023, arXiv:2305.02301, who hold an update against gradients
of images. Where outputs are drawn by the model (`labels: model` of FedCurv) no term is exactly a member's.

Members are images that a client holds, non-members images that nobody trained on, **as many of each class**: the
diagonal shows which classes a client has, and among others its classes would be mistaken for membership. Blind
adversaries score with the diagonal and the model of another client. The planted leak is the diagonal of `PLANTED`
held-out images at each client's model; the negative control has held-out images in the place of members.

Claim: scorers [k], objects, from images to scores; client [k]; artifact [k] as text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Images, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.membership import Scores, curve, evidence, halves, score_clusters
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.models._gradients import Gradients
from fedaudit.attacks.prototypes._weights import sent_with
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

PLANTED = 4  # images behind a planted diagonal
CHUNK = 100  # images whose gradients are in memory at a time
Values = NDArray[np.float64]
Pair = tuple[Values, Values]  # scores of members, and of non-members


class FisherMembership(Attack):
    card = Card(
        title="Membership from Fisher diagonals",
        source="after Li, Li, Ribeiro, ICLR 2023, cosine attack, on what FedCurv sends (arXiv:1910.07796)",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(Kind.FISHER,),
        also_reads=(Kind.LOCAL_MODEL,),
        aids=(Kind.LOCAL_MODEL,),
        learns="whether a given image was in one client's training data, from its Fisher diagonal",
        does_not_show="membership to an adversary that sums up several rounds; nor the classes that a client has",
        control="",  # planted in measure()
        remedy="aggregate Fisher diagonals securely, or noise them with a stated epsilon",
        uncounted="It compares images within each client, and flags nobody.",
        effort=Effort(seconds=2, grows=("parameters", "clients")),
    )

    @settings
    class Config:
        members: AtLeastOne = Field(default=100, description="images of a client that are asked about, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _list_diagonals(view, knowledge)
        scorers = np.empty(len(sent), object)
        scorers[:] = [_Scorer(model.payload, a.payload, knowledge) for a, model in sent]
        return {
            "scorers": scorers,
            "client": np.array([a.sender.index for a, _ in sent]),
            "artifact": np.array([a.id for a, _ in sent]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        real, blind, planted, silent = (list[Pair]() for _ in range(4))
        scorers, clients = claim["scorers"], claim["client"].tolist()
        for place, client in enumerate(clients):
            scorer = scorers[place]
            own, others = self._draw_images(truth, client, rng)
            if not len(own):
                continue
            ins, outs = scorer(own), scorer(others)
            real.append((ins, outs))
            if len(scorers) > 1:
                other = scorers[(place + 1) % len(scorers)]
                blind.append((other(own), other(others)))
            silent.append(halves(outs, rng))
            few = others.only(np.arange(min(PLANTED, len(others) // 2)))
            rest = others.only(np.arange(len(few), len(others)))
            leaky = scorer.with_diagonal_of(few)
            planted.append((leaky(few), leaky(rest)))
        against = "held-out images of the same classes"
        beside = {"another client's diagonal": _pool(blind)} if blind else {}
        found = evidence(_pool(real), beside, others=against)
        note = f"the diagonal of {PLANTED} held-out images at each client's model"
        found += evidence(_pool(planted), {}, note=note, control="positive", others=against)[:1]
        note = "held-out images in the place of members"
        return [*found, *evidence(_pool(silent), {}, note=note, control="negative")[:1]]

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        rng, pairs = np.random.default_rng(0), list[Pair]()
        for scorer, client in zip(claim["scorers"], claim["client"].tolist(), strict=True):
            own, others = self._draw_images(truth, client, rng)
            if len(own):
                pairs.append((scorer(own), scorer(others)))
        return [curve("Fisher diagonals", _pool(pairs))] if pairs else []

    def _draw_images(self, truth: Truth, client: int, rng: np.random.Generator) -> tuple[Images, Images]:
        """Images of a client and as many held-out ones of each class, both in random order."""
        own, unseen = truth.client_images(client), truth.unseen([client]).images
        share = min(1.0, self.config.members / max(1, len(own)))
        members, others = list[int](), list[int]()
        for c in np.unique(own.y):
            mine, theirs = (rng.permutation(np.flatnonzero(side.y == c)) for side in (own, unseen))
            many = min(round(share * len(mine)), len(theirs))
            members += mine[:many].tolist()
            others += theirs[:many].tolist()
        picked = np.array(members, np.int64), rng.permutation(np.array(others, np.int64))
        return own.only(picked[0]), unseen.only(picked[1])

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

    def __call__(self, images: Images) -> Values:
        parts = [self._score(s) for s in self._square(images)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def with_diagonal_of(self, images: Images) -> "_Scorer":
        """The same model with the diagonal of these images."""
        made = object.__new__(_Scorer)
        made._gradients = self._gradients
        made._fisher = np.concatenate(self._square(images)).mean(axis=0)
        return made

    def _square(self, images: Images) -> list[Values]:
        """Squared gradients [n, P], chunk by chunk."""
        cuts = range(0, len(images), CHUNK)
        return [
            self._gradients(images.x[i : i + CHUNK], images.y[i : i + CHUNK]).astype(np.float64) ** 2
            for i in cuts
        ]

    def _score(self, squares: Values) -> Values:
        lengths = np.sqrt((squares**2).sum(axis=1) * (self._fisher**2).sum())
        return np.asarray(squares @ self._fisher / np.maximum(lengths, np.finfo(np.float64).tiny))


def _pool(pairs: Sequence[Pair]) -> Scores:
    return score_clusters([ins for ins, _ in pairs], [outs for _, outs in pairs])


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
