"""Inverting Gradients: images whose gradient points the same way as the client's, and that are smooth.

Geiping, Bauermeister, Droege, Moeller. Inverting Gradients. NeurIPS 2020. arXiv:2003.14053, eq. 4:

    x = argmin 1 - cos(gradient(x, y), g) + alpha TV(x)

by Adam on the sign of the gradient, the rate divided by ten after 3/8, 5/8 and 7/8 of the steps, images
kept in [0, 1]. Labels are read off the last layer first (iDLG for one image, LLG for a batch). Of an
upload of a few steps over one batch the steps themselves are imitated (sec. 6, "federated averaging");
one of many steps is treated as the average gradient. Changed: the best of four starts of 300 iterations
for one of their 4,800, in a quarter of the time.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update, cosine_distance, labels
from fedaudit.attacks.evaluation.update_inversion import CARD, UpdateInversion
from fedaudit.attacks.evidence import is_replay
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]


class InvertingGradients(UpdateInversion):
    card = replace(
        CARD,
        title="Inverting Gradients",
        source="arXiv:2003.14053, eq. 4",
        effort=Effort(seconds=240, grows=("network", "updates"), settings=("iterations", "restarts")),
    )

    @settings
    class Config(UpdateInversion.Config):
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

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        import torch

        known = labels(update, knowledge, number)
        y = rng.integers(knowledge.classes, size=number) if known is None else known
        copy, generator = Imitation(update, knowledge), torch.Generator()
        generator.manual_seed(int(rng.integers(2**62)))
        tries = [
            self._once(copy, torch.from_numpy(y).to(copy.device), knowledge.shape, generator)
            for _ in range(self.config.restarts)
        ]
        # chosen by the gradient, never by looking at the truth
        return min(tries, key=lambda t: t[0])[1].cpu().numpy(), y

    def _once(
        self, copy: Imitation, y: "Tensor", shape: tuple[int, ...], generator: Any
    ) -> "tuple[float, Tensor]":
        """How far the gradients are apart in the end, and the images."""
        import torch

        c, u = self.config, copy.update
        exact = is_replay(u.origin) or u.batch == u.examples  # one batch, again and again
        steps = u.steps if c.simulate_steps and exact and u.steps <= c.most_steps else 1
        x = torch.rand((len(y), *shape), generator=generator).to(copy.device).requires_grad_(True)
        optimiser = eager(torch.optim.Adam)([x], lr=c.lr)
        rate = torch.optim.lr_scheduler.MultiStepLR(
            optimiser, [int(c.iterations * part) for part in (3 / 8, 5 / 8, 7 / 8)]
        )
        apart = torch.zeros(())
        for _ in range(c.iterations):
            apart = cosine_distance(copy.descent(x, y, steps), copy.target)
            loss = apart + c.smoothness * roughness(x)
            (grad,) = torch.autograd.grad(loss, [x])
            x.grad = grad.sign()
            optimiser.step()
            rate.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        return float(apart.detach()), x.detach()


def roughness(x: "Tensor") -> "Tensor":
    """Total variation as in the authors' code: mean absolute difference of neighbours, [B, C, H, W]."""
    down, across = x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]
    total: Tensor = down.abs().mean() + across.abs().mean()
    return total
