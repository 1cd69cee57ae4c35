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

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.decoder import initialise
from fedaudit.attacks.evaluation.gradients import Imitation, Update, squared_distance
from fedaudit.attacks.evaluation.update_inversion import CARD, UpdateInversion
from fedaudit.attacks.prototypes.grnn import INPUTS, build_generator, total_variation
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]


class GRNNUpdates(UpdateInversion):
    card = replace(
        CARD,
        title="GRNN inversion of updates",
        source="arXiv:2105.00529, Alg. 1",
        effort=Effort(seconds=240, grows=("network", "updates"), settings=("iterations",)),
    )

    @settings
    class Config(UpdateInversion.Config):
        iterations: AtLeastOne = Field(default=600, description="steps that fit one generator")
        distance: Literal["l2", "sorted"] = Field(
            default="l2",
            description="W: the L2 norm as in the authors' code, or the sorted distance that the paper names",
        )
        smoothness: Amount = Field(default=1e-3, description="tau: weight of the total variation")
        lr: Amount = Field(default=1e-4, description="step size of RMSprop")
        momentum: BelowOne = Field(default=0.99, description="momentum of RMSprop")

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        import torch
        from torch import nn

        c, copy, shape = self.config, Imitation(update, knowledge), knowledge.shape
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        images = build_generator(shape, generator).to(copy.device)
        classes = initialise(
            lambda: nn.Sequential(nn.Linear(INPUTS, knowledge.classes), nn.Softmax(1)), generator
        ).to(copy.device)
        z = torch.randn((number, INPUTS), generator=generator).to(copy.device)
        own = [*images.parameters(), *classes.parameters()]
        optimiser = eager(torch.optim.RMSprop)(own, lr=c.lr, momentum=c.momentum)
        x, y = torch.zeros(0), torch.zeros(0)
        for _ in range(c.iterations):
            optimiser.zero_grad()
            x = images(z[:, :, None, None])[..., : shape[1], : shape[2]]
            y = classes(z)
            found = copy.gradient(x, y)
            gap = squared_distance(found, copy.target)
            apart = (gap + 1e-12).sqrt() if c.distance == "l2" else transport(found, copy.target)
            loss = gap + apart + c.smoothness * total_variation(x).mean()
            torch.autograd.backward(loss, inputs=own)
            optimiser.step()
        return x.detach().cpu().numpy(), y.detach().argmax(1).cpu().numpy()


def transport(found: "list[Tensor]", target: "list[Tensor]") -> "Tensor":
    """1-Wasserstein distance of the entries of two gradients: mean gap of their sorted values."""
    import torch

    a, b = (torch.cat([g.flatten() for g in both]).sort()[0] for both in (found, target))
    gap: Tensor = (a - b).abs().mean()
    return gap
