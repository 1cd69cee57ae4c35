"""Inverting Gradients: images whose gradient points the same way as the client's, and that are smooth.

Geiping, Bauermeister, Droege, Moeller. Inverting Gradients. NeurIPS 2020. arXiv:2003.14053, eq. 4:

    x = argmin 1 - cos(gradient(x, y), g) + alpha TV(x)

by Adam on the sign of the gradient, the rate divided by ten after 3/8, 5/8 and 7/8 of the steps, images
kept in [0, 1]. Labels are read off the last layer first (iDLG for one image, LLG for a batch). Of an
upload of a few steps over one batch the steps themselves are imitated (sec. 6, "federated averaging");
one of many steps is treated as the average gradient. Changed: the best of four starts of 300 iterations
for one of their 4,800, in a quarter of the time.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update, cosine_distance, labels
from fedaudit.attacks.evaluation.searches import Measure
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evaluation.update_search import Drawn, UpdateSearch, UpdateSearching
from fedaudit.attacks.evidence import is_replay
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor


class InvertingGradients(UpdateSearching):
    card = replace(
        CARD,
        title="Inverting Gradients",
        source="arXiv:2003.14053, eq. 4",
        effort=Effort(seconds=240, grows=("network", "updates"), settings=("iterations", "restarts")),
    )

    @settings
    class Config(UpdateSearching.Config):
        iterations: AtLeastOne = Field(
            default=300, description="steps of Adam on an image; the paper takes 4,800"
        )
        lr: Amount = Field(
            default=0.1,
            description="step size on the image at first; divided by ten after 3/8, 5/8 and 7/8 of the steps",
        )
        smoothness: Amount = Field(default=0.01, description="alpha: weight of the total variation")
        restarts: AtLeastOne = Field(
            default=4, description="images to start from, of which the one that matches the gradient best is kept"
        )
        simulate_steps: bool = Field(default=True, description="whether to imitate each step of short uploads")

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[UpdateSearch]:
        import torch

        c, known = self.config, labels(update, knowledge, number)
        y = rng.integers(knowledge.classes, size=number) if known is None else known
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        exact = is_replay(update.origin) or update.batch == update.examples  # one batch, again and again
        steps = update.steps if c.simulate_steps and exact and update.steps <= c.most_steps else 1
        starts = [torch.rand((number, *knowledge.shape), generator=generator) for _ in range(c.restarts)]
        made = partial(UpdateSearch, update=update, knowledge=knowledge, labels=y, steps=steps)
        return [made(start=[start]) for start in starts]

    def read(self, search: UpdateSearch, copy: Imitation) -> "list[Tensor]":
        import torch

        return [torch.from_numpy(search.labels).to(copy.device), *super().read(search, copy)]

    def list_measures(self, search: UpdateSearch, copy: Imitation) -> list[Measure]:
        def measure(x: "Tensor", y: "Tensor", *target: "Tensor") -> "tuple[Tensor, Tensor]":
            """What is minimised, and how far the gradient of these images is from the target."""
            apart = cosine_distance(copy.descent(x, y, search.steps), target)
            return apart + self.config.smoothness * roughness(x), apart

        return [measure]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        """How far gradients are apart in the end, and the images; each pixel moves by itself."""
        import torch

        c, [x], [measure] = self.config, variables, measures
        optimiser = eager(torch.optim.Adam)([x.requires_grad_(True)], lr=c.lr)
        rate = torch.optim.lr_scheduler.MultiStepLR(
            optimiser, [int(c.iterations * part) for part in (3 / 8, 5 / 8, 7 / 8)]
        )
        apart = torch.zeros(())
        for _ in range(c.iterations):
            loss, apart = measure(x)
            (grad,) = torch.autograd.grad(loss.sum(), [x])
            x.grad = grad.sign()
            optimiser.step()
            rate.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        return [apart.detach(), x.detach()]

    def finish(self, search: UpdateSearch, found: "Sequence[Tensor]") -> Drawn:
        apart, x = found
        return Drawn(float(apart), x.numpy(), search.labels)


def roughness(x: "Tensor") -> "Tensor":
    """Total variation as in the authors' code: mean absolute difference of neighbours, [B, C, H, W]."""
    down, across = x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]
    total: Tensor = down.abs().mean() + across.abs().mean()
    return total
