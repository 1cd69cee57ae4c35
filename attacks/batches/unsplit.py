"""UnSplit: images and a client's layers at once, from nothing but what the layers made of the images.

Erdogan, Kupcu, Cicek. UnSplit: Data-Oblivious Model Inversion, Model Stealing, and Label Inference Attacks
Against Split Learning. WPES 2022, arXiv:2108.09033, Algorithm 1. The server knows the architecture alone. It
draws layers of its own, a clone f~, begins with grey images x~ = 0.5, and in turn steps

    x~    down  MSE(f~(x~), z) + lambda_tv TV(x~) + lambda_l2 mean(x~^2)
    f~    down  MSE(f~(x~), z)

with Adam (amsgrad). So it reads split learning whose first layers never reach it, and the features of FedGKT.

A clone is fixed only up to what the images can undo, so beside it stands the same clone left as it was drawn:
what that makes of the messages is the prior's doing. Whether so many examples through this architecture can be
read is asked of a planted leak: images of the auditor's own through layers drawn once more, of which the attack
knows as little. Trained layers may be harder or easier to read than drawn ones.

Changed from the authors' code (ege-erdogan/unsplit, 4d972bf): all examples of a client are redrawn together,
with one clone, where that code redraws one after the other and carries the clone on; 20 rounds of 20 and 20 steps
of 0.03 and 0.003, where it has 1000 of 100 and 100 steps of 0.001; and lambda_tv and lambda_l2 are 0.001, where
it has 0.1 and 1, which darken the images by more than what the activations say of them. Images are not stretched
to [0, 1] but cut off. Normalisation layers keep the statistics with which they begin.

Claim: as in _inversion.py; random_clone float32 [k, C, H, W], the images by the clone as drawn; knowledge [1]
and kind [1], what plants the leak and as what.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.batches._inversion import ActivationInversion, RowTruth, join_images, label_rows
from fedaudit.attacks.batches._running import descend, draw_network
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.batch_readings import UNUSED, Batch, list_batches
from fedaudit.attacks.evaluation.decoder import tensor
from fedaudit.attacks.evaluation.searches import Measure, Search, Searching, open_weights, take_features
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

if TYPE_CHECKING:
    from torch import Tensor, nn

RANDOM_CLONE = "the same with a random clone"
PLANTED = "planted"
Floats = NDArray[np.floating[Any]]


class Unsplit(Searching["CloneSearch", Floats], ActivationInversion):
    needs_layers = False
    kinds = (Kind.SMASHED, Kind.FEATURES)
    beside = (*ActivationInversion.beside, RANDOM_CLONE)
    columns = {RANDOM_CLONE: "random_clone"}
    of_batches = ActivationInversion.of_batches | {"knowledge"}
    card = Card(
        title="UnSplit: images and layers from activations alone",
        source="arXiv:2108.09033, Alg. 1",
        aim=Aim.INVERSION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(),
        also_reads=(Kind.SMASHED, Kind.FEATURES),
        learns="each image behind a message, though it knows neither the first layers nor any image",
        does_not_show="what a server finds that knows the layers, has images of its own, or searches longer",
        remedy="cut the network later, or clip and noise activations with a stated epsilon",
        effort=Effort(seconds=12, grows=("pixels", "clients"), settings=("rounds",)),
    )

    @settings
    class Config(ActivationInversion.Config):
        examples: AtLeastOne = Field(
            default=48,
            description="examples of a client that are redrawn together, evenly spread over its batches",
        )
        rounds: AtLeastOne = Field(default=20, description="turns of images and clone")
        image_steps: AtLeastOne = Field(default=20, description="steps of the images in a turn")
        clone_steps: AtLeastZero = Field(default=20, description="steps of the clone in a turn")
        lr: Positive = Field(default=0.03, description="step size of the images")
        clone_lr: Positive = Field(default=0.003, description="step size of the clone")
        smooth: Amount = Field(default=1e-3, description="lambda_tv: weight of the images' total variation")
        dark: Amount = Field(default=1e-3, description="lambda_l2: weight of the images' mean square")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        known, again = np.empty(1, object), copy.deepcopy(rng)
        known[0] = knowledge
        claim = super().run(view, knowledge, rng)
        left = join_images(self._invert(self.list_groups(view), knowledge, again, learns=False))
        return {**claim, "random_clone": left, "knowledge": known}

    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        return self._invert(groups, knowledge, rng, learns=True)

    def _invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator, learns: bool
    ) -> list[list[Floats]]:
        def draw() -> Iterator[CloneSearch]:
            for group in groups:
                z = np.concatenate([b.activations for b in group])
                yield draw_clone(knowledge, group[0].artifact.kind, z, int(rng.integers(2**62)), learns)

        found = zip(self.search(draw(), knowledge.device), groups, strict=True)
        return [np.split(images, np.cumsum([len(b.rows) for b in group])[:-1]) for images, group in found]

    def imitate(self, search: "CloneSearch", stackable: bool) -> "Callable[..., Tensor]":
        """Images and a clone's weights, in the order of `start`, to activations [n, D]."""
        layers = draw_layers(search.knowledge, search.sent, 0)  # whose own weights do not count
        run = open_weights(layers, [name for name, _ in layers.named_parameters()])
        return lambda *given: run(*given).flatten(1)

    def read(self, search: "CloneSearch", copy: "Callable[..., Tensor]") -> "list[Tensor]":
        return [tensor(search.activations, search.knowledge.device)]

    def list_measures(self, search: "CloneSearch", copy: "Callable[..., Tensor]") -> list[Measure]:
        from torch.nn.functional import mse_loss

        c = self.config

        def of_clone(*given: "Tensor") -> "Tensor":
            *moved, z = given
            return mse_loss(copy(*moved), z)

        def of_images(x: "Tensor", *given: "Tensor") -> "Tensor":
            prior: Tensor = c.smooth * total_variation(x) + c.dark * x.square().mean()
            return of_clone(x, *given) + prior

        return [of_images, of_clone] if search.learns else [of_images]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        """The images; each pixel and each weight moves by itself."""
        import torch

        c, (of_images, *of_clone) = self.config, measures
        x, *weights = (v.requires_grad_() for v in variables)
        images, clone = (
            eager(torch.optim.Adam)(moved, lr=rate, amsgrad=True)
            for moved, rate in (([x], c.lr), (weights, c.clone_lr))
        )
        for _ in range(c.rounds):
            for _ in range(c.image_steps):
                descend(images, [x], of_images(x, *weights).sum())
            for measure in of_clone * c.clone_steps:
                descend(clone, weights, measure(x.detach(), *weights).sum())
        return [x.detach()]

    def finish(self, search: "CloneSearch", found: "Sequence[Tensor]") -> Floats:
        return np.asarray(found[0].numpy())

    def list_groups(self, view: Sequence[Artifact]) -> list[list[Batch]]:
        """A client's batches together, thinned to the examples that are redrawn."""
        groups = defaultdict[tuple[str, str], list[Batch]](list)
        for kind in self.kinds:
            for b in list_batches(view, self.config.batches, needs_layers=False, kind=kind):
                if b.artifact.origin == "recorded":
                    groups[kind, str(b.artifact.sender)].append(b)
        each = ((g, max(1, self.config.examples // len(g))) for g in groups.values())
        return [[b.thin(most) for b in group] for group, most in each]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        seen = index(view)
        if not self.list_groups(view):
            return "no client sent what its first layers make of its examples"
        if seen.select(kind=Kind.SMASHED) and "cut" not in knowledge.training:
            return "after which layer the network is cut was not stated"
        return ""

    def prepare(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> tuple[Claim, RowTruth]:
        known = PlantedRows(truth, rng.permutation(len(truth.auxiliary))[: self._count_together(claim)])
        return label_rows(self._plant(claim, known, rng), known), known

    def _count_together(self, claim: Claim) -> int:
        """As many examples as were redrawn together of the client of whom they are most."""
        return int(np.unique(claim["sender"], return_counts=True)[1].max())

    def _plant(self, claim: Claim, known: "PlantedRows", rng: np.random.Generator) -> Claim:
        """The claim and, of the same client code's layers drawn anew, what the attack makes of known images."""
        import torch

        [knowledge], kind, images = claim["knowledge"], Kind(claim["kind"][0]), known.planted_images
        layers, clone = (int(seed) for seed in rng.integers(2**62, size=2))
        with torch.no_grad():
            sent = draw_layers(knowledge, kind, layers)(tensor(images, knowledge.device)).flatten(1).cpu().numpy()
        both = (draw_clone(knowledge, kind, sent, clone, learns) for learns in (True, False))
        made, left = self.search(both, knowledge.device)
        n = len(images)
        planted: dict[str, Any] = {
            "images": join_images([[made]]),
            "random_clone": join_images([[left]]),
            "label": np.full(n, -1),
            "row": np.arange(n),
            "n": np.ones(n, np.int64),
            "artifact": np.array([f"{PLANTED}#{i}" for i in range(n)]),
            "sender": claim["senders"][np.arange(n) % len(claim["senders"])],
            "round": np.zeros(n, np.int64),
            "kind": np.full(n, kind.value),
            "origin": np.full(n, UNPROTECTED),
            "extractor": np.full(n, UNUSED),
        }
        return {**claim, **{k: np.concatenate([claim[k], v]) for k, v in planted.items()}}


class PlantedRows(RowTruth):
    """The truth about single examples, and about those of the auxiliary images that are planted."""

    def __init__(self, truth: Truth, rows: NDArray[np.int64]) -> None:
        super().__init__(truth)
        self._images = truth.auxiliary.only(rows)

    @property
    def planted_images(self) -> Floats:
        return self._images.x

    def _find(self, artifact: str) -> tuple[NDArray[np.int64], Floats, int, int] | None:
        name, _, row = artifact.rpartition("#")
        if name != PLANTED:
            return super()._find(artifact)
        i = int(row)
        return np.array([i]), self._images.x[i : i + 1], int(self._images.y[i]), -1


@dataclass(frozen=True, kw_only=True)
class CloneSearch(Search):
    """For the images behind rows of a client's messages; images start grey and a clone of its layers as drawn."""

    knowledge: Knowledge
    sent: Kind
    activations: Floats  # [n, D]
    learns: bool  # whether the clone moves too

    @property
    def kind(self) -> Hashable:
        return self.sent, self.activations.shape, self.learns


def draw_clone(knowledge: Knowledge, sent: Kind, activations: Floats, seed: int, learns: bool) -> CloneSearch:
    """For images whose rows [n, D] of a message of this kind are nearest, by layers drawn with `seed`."""
    import torch

    layers = draw_layers(replace(knowledge, device="cpu"), sent, seed)
    start = [torch.full((len(activations), *knowledge.shape), 0.5), *(p.detach() for p in layers.parameters())]
    return CloneSearch(start=start, knowledge=knowledge, sent=sent, activations=activations, learns=learns)


def draw_layers(knowledge: Knowledge, sent: Kind, seed: int) -> "nn.Module":
    """What clients run on images before they send such a kind, with weights drawn anew."""
    whole = draw_network(knowledge, seed)
    if sent is Kind.SMASHED:
        layers: nn.Module = whole.first_layers(int(knowledge.training["cut"]))
        return layers
    return take_features(whole.module())


def total_variation(images: "Tensor") -> "Tensor":
    """Mean square of differences of neighbours down, plus that across, of images [n, C, H, W]; no root."""
    down = (images[:, :, 1:] - images[:, :, :-1]).square()
    across = (images[..., 1:] - images[..., :-1]).square()
    return down.mean() + across.mean()
