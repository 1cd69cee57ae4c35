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

Claim: as in _inversion.py; random_clone float32 [k, C, H, W], the images by the clone as drawn; inverter [1] and
kind [1], what plants the leak and as what.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.batches._inversion import ActivationInversion, RowTruth, join_images, label_rows
from fedaudit.attacks.batches._running import descend, draw_network
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.batch_readings import UNUSED, Batch, list_batches
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

RANDOM_CLONE = "the same with a random clone"
PLANTED = "planted"
Floats = NDArray[np.floating[Any]]


class Unsplit(ActivationInversion):
    needs_layers = False
    kinds = (Kind.SMASHED, Kind.FEATURES)
    beside = (*ActivationInversion.beside, RANDOM_CLONE)
    columns = {RANDOM_CLONE: "random_clone"}
    of_batches = ActivationInversion.of_batches | {"inverter"}
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
        inverter, again = Inverter(knowledge, self.config), copy.deepcopy(rng)
        claim = super().run(view, knowledge, rng)
        known = np.empty(1, object)
        known[0] = inverter
        groups = self.list_groups(view)
        left = join_images(_invert(groups, inverter, again, learns=False))
        return {**claim, "random_clone": left, "inverter": known}

    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        return _invert(groups, Inverter(knowledge, self.config), rng, learns=True)

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
        [inverter], kind, images = claim["inverter"], Kind(claim["kind"][0]), known.planted_images
        layers, clone = (int(seed) for seed in rng.integers(2**62, size=2))
        z = inverter.send(kind, layers, images)
        made, left = (inverter.invert(kind, z, clone, learns) for learns in (True, False))
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


@dataclass(frozen=True)
class Inverter:
    """Layers as the server draws them, and the search for what went through others like them."""

    knowledge: Knowledge
    config: Unsplit.Config

    def send(self, kind: Kind, seed: int, images: Floats) -> NDArray[np.float32]:
        """[n, D] what layers that are drawn so make of images [n, C, H, W] in [0, 1]."""
        import torch

        layers, _ = self._draw_layers(kind, seed)
        with torch.no_grad():
            x = torch.from_numpy(np.ascontiguousarray(images)).to(self.knowledge.device)
            return np.asarray(layers(x).flatten(1).cpu().numpy(), np.float32)

    def invert(self, kind: Kind, activations: Floats, seed: int, learns: bool) -> Floats:
        """Images [n, C, H, W] whose activations by a clone, drawn so, are nearest; `learns`: it moves too."""
        import torch
        from torch.nn.functional import mse_loss

        layers, weights = self._draw_layers(kind, seed)
        c, device = self.config, self.knowledge.device
        z = torch.from_numpy(np.ascontiguousarray(activations, np.float32)).to(device)
        x = torch.full((len(z), *self.knowledge.shape), 0.5, device=device, requires_grad=True)
        of_images, of_clone = (
            eager(torch.optim.Adam)(moved, lr=rate, amsgrad=True)
            for moved, rate in (([x], c.lr), (weights, c.clone_lr))
        )

        for _ in range(c.rounds):
            for _ in range(c.image_steps):
                prior = c.smooth * total_variation(x) + c.dark * x.square().mean()
                descend(of_images, [x], mse_loss(layers(x).flatten(1), z) + prior)
            for _ in range(c.clone_steps if learns else 0):
                descend(of_clone, weights, mse_loss(layers(x.detach()).flatten(1), z))
        return np.asarray(x.detach().cpu().numpy())

    def _draw_layers(self, kind: Kind, seed: int) -> tuple[Callable[[Any], Any], list[Any]]:
        """What clients run on images before they send such a kind, with weights drawn anew, and those weights."""
        whole = draw_network(self.knowledge, seed)
        module = whole.module()
        layers = module.features
        if kind is Kind.SMASHED:
            layers = whole.first_layers(int(self.knowledge.training["cut"]))
        weights = [p.requires_grad_() for p in module.parameters()]
        return layers, weights


def _invert(
    groups: Sequence[Sequence[Batch]], inverter: Inverter, rng: np.random.Generator, learns: bool
) -> list[list[Floats]]:
    found = []
    for group in groups:
        z = np.concatenate([b.activations for b in group])
        images = inverter.invert(group[0].artifact.kind, z, int(rng.integers(2**62)), learns)
        found.append(np.split(images, np.cumsum([len(b.rows) for b in group])[:-1]))
    return found


def total_variation(images: Any) -> Any:
    """Mean square of differences of neighbours down, plus that across, of images [n, C, H, W]; no root."""
    down = (images[:, :, 1:] - images[:, :, :-1]).square()
    across = (images[..., 1:] - images[..., :-1]).square()
    return down.mean() + across.mean()
