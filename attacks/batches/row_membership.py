"""Membership in rows: is one of the rows that a client sent, one for each of its examples, made of this image?

Where the layers that made the rows are known (SplitFed hands them out, split learning releases them), the score
is minus the distance to the nearest row with the image's label. A member's own row lies at 0, which is algebra:
noise alone is in the way.

Where nobody but the client knows its layers (FedGKT), outputs come beside the features, and two networks make
about the same of an image, less the mean over classes and in units of its length. The score is minus the distance
to the nearest output with that label from the mean output of networks that the server trains on its own images.
After LiRA (Carlini et al., arXiv:2112.03570), which asks the client's own model; of rows alone we know of no
published attack. The planted leak is what one more such network, trained on the images as well, makes of them.

Claim: as in attacks/evaluation/client_membership.py.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Examples, Knowledge, Layered
from fedaudit.attacks.batches._running import imitate_noise, run_first_layers, train_network
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.batch_readings import Arrays, group_by_weights, list_batches
from fedaudit.attacks.evaluation.client_membership import CARD, ClientMembership, UploadScorer, Values
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Position, ThreatModel

Labels = NDArray[np.int64]
EVERY = 1_000_000  # batches of a client's newest round


class RowMembership(ClientMembership):
    sent = "rows"
    card = replace(
        CARD,
        title="Membership from a row for each example",
        needs=("numbers", "classes"),
        source="after Carlini et al., arXiv:2112.03570",
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        also_reads=(Kind.FEATURES, Kind.SMASHED, Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL),
        aids=(Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL),
        does_not_show="membership to a server that comes to know layers which it does not know here",
        remedy="keep the first layers from whoever reads the rows, or clip and noise rows with a stated epsilon",
        effort=Effort(seconds=6, grows=("network", "auxiliary"), examples=20, settings=("networks", "epochs")),
    )

    @settings
    class Config(ClientMembership.Config):
        networks: int = Field(
            default=8, ge=4, description="networks that the server trains where it does not know the layers"
        )
        epochs: AtLeastOne = Field(default=20, description="passes of each of them over half of its images")

    def build_scorers(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Artifact, UploadScorer]]:
        found = list[tuple[Artifact, UploadScorer]](_list_known(view, knowledge, int(rng.integers(2**62))))
        if not found:
            c = self.config
            shadows = ShadowNetworks(knowledge, c.networks, c.epochs, int(rng.integers(2**62)))
            found += [
                (a, OutputScorer(shadows, _centre(a.payload["logits"]), np.asarray(a.payload["labels"])))
                for a in _list_outputs(view)
            ]
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        seen = index(view)
        if not seen.select(kind=Kind.FEATURES) and not seen.select(kind=Kind.SMASHED):
            return "no client sent what its first layers make of its examples"
        if _list_known(view, knowledge, 0):
            return ""
        if not _list_outputs(view):
            return "the first layers never reached the server, and no outputs come beside what they make"
        if len(knowledge.auxiliary or ()) < 2 * knowledge.classes:
            return "networks that imitate the clients' need auxiliary examples, two a class at least"
        return ""


def _list_known(view: Sequence[Artifact], knowledge: Knowledge, seed: int) -> list[tuple[Artifact, "RowScorer"]]:
    """Each client whose layers are known, with the rule for its newest rows."""
    if "cut" not in knowledge.training:
        return []
    rows = defaultdict[int, list[tuple[Artifact, Arrays, Values, Labels]]](list)
    for group in group_by_weights(list_batches(view, EVERY)):
        for b in group:
            sent = b.artifact.sender.index
            if sent is not None and b.artifact.origin == "recorded":
                rows[sent].append((b.artifact, group[0].weights, b.activations.astype(np.float64), b.labels))
    return [
        (own[0][0], RowScorer(knowledge, [(w, z, y) for _, w, z, y in own], seed))
        for _, own in sorted(rows.items())
    ]


@dataclass(frozen=True)
class RowScorer:
    """Minus the squared distance to the nearest row of the label, of layers that are known."""

    knowledge: Knowledge
    batches: Sequence[tuple[Arrays, Values, Labels]]  # layers, rows [b, D] and labels [b], -1 where not sent
    seed: int

    def __call__(self, images: Examples) -> Values:
        scores, fits = [], []
        for weights, rows, labels in self.batches:
            z = run_first_layers(weights, images.x, self.knowledge).astype(np.float64)
            far = np.square(z).sum(axis=1)[:, None] - 2 * z @ rows.T + np.square(rows).sum(axis=1)
            scores.append(-np.maximum(far, 0))
            fits.append((labels == -1) | (labels == images.y[:, None]))
        return _find_nearest(np.concatenate(scores, axis=1), np.concatenate(fits, axis=1))

    def plant(self, images: Examples) -> "RowScorer":
        weights, rows, labels = self.batches[0]
        made, rng = run_first_layers(weights, images.x, self.knowledge), np.random.default_rng(self.seed)
        sent = imitate_noise(made, rows.astype(np.float32), self.knowledge, rng).astype(np.float64)
        known = images.y if (labels >= 0).all() else np.full(len(images), -1)
        return replace(self, batches=[(weights, sent, known)])


@dataclass(frozen=True)
class ShadowNetworks:
    """Networks that the server trains on images of its own, each on half of them."""

    knowledge: Knowledge
    count: int
    epochs: int
    seed: int

    def predict(self, images: Examples) -> Values:
        """Their mean output on each image, [n, C]."""
        return np.asarray(np.mean([_centre(net.logits(images.x)) for net in self._networks], axis=0))

    def make_outputs(self, images: Examples) -> Values:
        """What one more network, trained on these images as well, makes of them, [n, C]."""
        own = self.knowledge.granted_auxiliary
        half = own.only(np.random.default_rng(self.seed).permutation(len(own))[: len(own) // 2])
        both = Examples(x=np.concatenate([half.x, images.x]), y=np.concatenate([half.y, images.y]))
        return _centre(train_network(self.knowledge, both, self.epochs, self.seed + self.count).logits(images.x))

    @cached_property
    def _networks(self) -> list[Layered]:
        own, rng = self.knowledge.granted_auxiliary, np.random.default_rng(self.seed)
        halves = [rng.permutation(len(own))[: len(own) // 2] for _ in range(self.count)]
        return [
            train_network(self.knowledge, own.only(rows), self.epochs, self.seed + i)
            for i, rows in enumerate(halves)
        ]


@dataclass(frozen=True)
class OutputScorer:
    """Minus the squared distance from what is expected of an image to the nearest output with its label."""

    shadows: ShadowNetworks
    outputs: Values  # [n, C] of the client's examples, centred
    labels: Labels  # [n]

    def __call__(self, images: Examples) -> Values:
        far = np.square(self.shadows.predict(images)[:, None] - self.outputs).sum(axis=2)
        return _find_nearest(-far, self.labels == images.y[:, None])

    def plant(self, images: Examples) -> "OutputScorer":
        return replace(self, outputs=self.shadows.make_outputs(images), labels=np.asarray(images.y))


def _list_outputs(view: Sequence[Artifact]) -> list[Artifact]:
    """The newest features of each client with outputs and labels beside them."""
    newest = dict[int, Artifact]()
    for a in sorted(index(view).select(kind=Kind.FEATURES, origin="recorded"), key=lambda a: a.round):
        if a.sender.index is not None and {"logits", "labels"} <= a.payload.keys():
            newest[a.sender.index] = a
    return [a for _, a in sorted(newest.items())]


def _centre(outputs: NDArray[Any]) -> Values:
    """Outputs [n, C] less their mean over classes, of mean square 1."""
    z = np.asarray(outputs, np.float64)
    z = z - z.mean(axis=1, keepdims=True)
    return np.asarray(z / max(float(np.sqrt(np.square(z).mean())), np.finfo(np.float64).tiny))


def _find_nearest(scores: Values, fits: NDArray[np.bool_]) -> Values:
    """The largest score [n] of rows that fit, [n, r]; the least of all where none does."""
    best = np.where(fits, scores, -np.inf).max(axis=1, initial=-np.inf)
    return np.asarray(np.where(np.isfinite(best), best, scores.min(initial=0.0)))
