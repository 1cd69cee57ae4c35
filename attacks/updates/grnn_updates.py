"""GRNN on updates: two generators, of images and of labels, are fitted until they give the gradient.

Ren, Deng, Xie. GRNN: Generative Regression Neural Network. ACM TIST 2022. arXiv:2105.00529, Alg. 1: from
one fixed random input, drawn once, a convolutional branch makes B images and a linear one B soft
labels, and both learn to minimise

    ||gradient(x, y) - g||^2 + W(gradient(x, y), g) + tau TV(x).

As in the authors' code W is the L2 norm (`distance: l2`); `sorted` is the distance in one dimension
that the paper names. RMSprop, rate 1e-4, momentum 0.99. Published for sigmoid networks with large
random weights; the generator is a prior of its own and needs no auxiliary images. Changed: images
are cropped from the next power of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.decoder import initialise
from fedaudit.attacks.evaluation.gradients import Imitation, Update, squared_distance
from fedaudit.attacks.evaluation.searches import Measure
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evaluation.update_search import Drawn, UpdateSearch, UpdateSearching
from fedaudit.attacks.prototypes.grnn import INPUTS, build_generator, fit_generators, total_variation
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor, nn


class GRNNUpdates(UpdateSearching):
    card = replace(
        CARD,
        title="GRNN inversion of updates",
        source="arXiv:2105.00529, Alg. 1",
        effort=Effort(seconds=240, grows=("network", "updates"), settings=("iterations",)),
    )

    @settings
    class Config(UpdateSearching.Config):
        iterations: AtLeastOne = Field(default=600, description="steps that fit one generator")
        distance: Literal["l2", "sorted"] = Field(
            default="l2",
            description="W: the L2 norm as in the authors' code, or the sorted distance that the paper names",
        )
        smoothness: Amount = Field(default=1e-3, description="tau: weight of the total variation")
        lr: Amount = Field(default=1e-4, description="step size of RMSprop")
        momentum: BelowOne = Field(default=0.99, description="momentum of RMSprop")

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list["_Generators"]:
        import torch
        from torch import nn

        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        images = build_generator(knowledge.shape, generator)
        classes = initialise(
            lambda: nn.Sequential(nn.Linear(INPUTS, knowledge.classes), nn.Softmax(1)), generator
        )
        z = torch.randn((number, INPUTS), generator=generator)
        nets = nn.ModuleList([images, classes])
        own, unknown = [p.detach() for p in nets.parameters()], np.full(number, -1)
        return [_Generators(start=own, update=update, knowledge=knowledge, labels=unknown, nets=nets, z=z)]

    def read(self, search: UpdateSearch, copy: Imitation) -> "list[Tensor]":
        assert isinstance(search, _Generators), "as drawn"
        return [search.z.to(copy.device), *super().read(search, copy)]

    def list_measures(self, search: UpdateSearch, copy: Imitation) -> list[Measure]:
        from torch.func import functional_call

        assert isinstance(search, _Generators), "as drawn"
        c, (images, classes), (_, *side) = self.config, search.nets, search.knowledge.shape
        parts = [[name for name, _ in net.named_parameters()] for net in (images, classes)]
        split, end = len(parts[0]), len(search.start)

        def measure(*given: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
            """What is minimised, the images, and their labels."""
            of_images, of_classes, z, target = given[:split], given[split:end], given[end], given[end + 1 :]
            made = functional_call(images, dict(zip(parts[0], of_images, strict=True)), (z[:, :, None, None],))
            x = made[..., : side[0], : side[1]]
            y = functional_call(classes, dict(zip(parts[1], of_classes, strict=True)), (z,))
            found = copy.gradient(x, y)
            gap = squared_distance(found, target)
            apart = (gap + 1e-12).sqrt() if c.distance == "l2" else transport(found, target)
            return gap + apart + c.smoothness * total_variation(x).mean(), x, y

        return [measure]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        return fit_generators(self.config, self.config.iterations, variables, measures[0])

    def finish(self, search: UpdateSearch, found: "Sequence[Tensor]") -> Drawn:
        x, y = found
        return Drawn(0.0, x.numpy(), y.argmax(1).numpy())


@dataclass(frozen=True, kw_only=True)
class _Generators(UpdateSearch):
    """Of images and of labels, and the input z [B, INPUTS] that they are fitted on."""

    nets: "nn.ModuleList"
    z: "Tensor"


def transport(found: "Sequence[Tensor]", target: "Sequence[Tensor]") -> "Tensor":
    """1-Wasserstein distance of the entries of two gradients: mean gap of their sorted values."""
    import torch

    a, b = (torch.cat([g.flatten() for g in both]).sort()[0] for both in (found, target))
    gap: Tensor = (a - b).abs().mean()
    return gap
