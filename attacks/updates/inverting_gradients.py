"""Inverting Gradients: images whose gradient points the same way as the client's, and that are smooth.

Geiping, Bauermeister, Droege, Moeller. Inverting Gradients. NeurIPS 2020. arXiv:2003.14053, eq. 4:

    x = argmin 1 - cos(gradient(x, y), g) + alpha TV(x)

by Adam on the sign of the gradient, the rate divided by ten after 3/8, 5/8 and 7/8 of the steps, images
kept in [0, 1]. Labels are read off the last layer first (iDLG for one image, LLG for a batch). Of an
upload of a few steps over one batch the steps themselves are imitated (sec. 6, "federated averaging");
one of many steps is treated as the average gradient. Changed: the best of four starts of 300 iterations
for one of their 4,800, in a quarter of the time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Stackable, Update, cosine_distance, labels
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
        return self.invert_all([update], [number], knowledge, rng)[0]

    def invert_all(
        self, chosen: Sequence[Update], numbers: Sequence[int], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Floats, NDArray[np.int64]]]:
        searches = [self._draw(u, n, knowledge, rng) for u, n in zip(chosen, numbers, strict=True)]
        alike = dict[Any, list[_Search]]()
        for search in searches:
            alike.setdefault(search.kind, []).append(search)
        for group in alike.values():
            rows = [_Row(search, start) for search in group for start in search.starts]
            for row, end in zip(rows, self._search(rows, knowledge), strict=True):
                row.search.ends.append(end)
        # chosen by the gradient, never by looking at the truth
        return [(min(s.ends, key=lambda end: end[0])[1].numpy(), s.labels) for s in searches]

    def _draw(self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator) -> "_Search":
        import torch

        c, known = self.config, labels(update, knowledge, number)
        y = rng.integers(knowledge.classes, size=number) if known is None else known
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        exact = is_replay(update.origin) or update.batch == update.examples  # one batch, again and again
        steps = update.steps if c.simulate_steps and exact and update.steps <= c.most_steps else 1
        starts = [torch.rand((number, *knowledge.shape), generator=generator) for _ in range(c.restarts)]
        return _Search(update, steps, y, starts)

    def _search(self, rows: "Sequence[_Row]", knowledge: Knowledge) -> "list[tuple[float, Tensor]]":
        """How far the gradients are apart in the end, and the images, of searches that are alike.

        On an accelerator as one batch, halved where memory does not hold it. A processor takes one after the
        other, since a large network is no faster in a batch there. So it does where torch cannot stack a network.
        """
        import torch

        update, steps = rows[0].search.update, rows[0].search.steps
        copy = Imitation(update, knowledge)
        if copy.device.type != "cpu" and len(rows) > 1:
            try:
                return self._search_together(rows, Stackable(update, knowledge))
            except torch.OutOfMemoryError:
                half = len(rows) // 2
                return [*self._search(rows[:half], knowledge), *self._search(rows[half:], knowledge)]
            except RuntimeError:
                pass
        found: list[tuple[float, Tensor]] = []
        for search, start in rows:
            y, target = torch.from_numpy(search.labels).to(copy.device), copy.read(search.update)
            measure = partial(self._measure, copy, steps, y, target)
            apart, x = self._descend(measure, start.to(copy.device))
            found.append((float(apart), x.cpu()))
        return found

    def _search_together(self, rows: "Sequence[_Row]", copy: Stackable) -> "list[tuple[float, Tensor]]":
        import torch
        from torch.func import vmap

        steps, device = rows[0].search.steps, copy.device
        y = torch.stack([torch.from_numpy(row.search.labels) for row in rows]).to(device)
        targets = [torch.stack(of) for of in zip(*(copy.read(row.search.update) for row in rows), strict=True)]

        def measure(x: "Tensor") -> "tuple[Tensor, Tensor]":
            each = vmap(lambda x, y, *target: self._measure(copy, steps, y, target, x))
            apart, loss = each(x, y, *targets)
            return apart, loss.sum()

        apart, x = self._descend(measure, torch.stack([row.start for row in rows]).to(device))
        return list(zip(apart.tolist(), x.cpu(), strict=True))

    def _measure(
        self, copy: Imitation, steps: int, y: "Tensor", target: "Sequence[Tensor]", x: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """How far the gradient of these images is from the target; and what is minimised."""
        apart = cosine_distance(copy.descent(x, y, steps), target)
        return apart, apart + self.config.smoothness * roughness(x)

    def _descend(
        self, measure: "Callable[[Tensor], tuple[Tensor, Tensor]]", x: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """What the measure is in the end, and the images; each pixel moves by itself."""
        import torch

        c, x = self.config, x.requires_grad_(True)
        optimiser = eager(torch.optim.Adam)([x], lr=c.lr)
        rate = torch.optim.lr_scheduler.MultiStepLR(
            optimiser, [int(c.iterations * part) for part in (3 / 8, 5 / 8, 7 / 8)]
        )
        apart = torch.zeros(())
        for _ in range(c.iterations):
            apart, loss = measure(x)
            (grad,) = torch.autograd.grad(loss, [x])
            x.grad = grad.sign()
            optimiser.step()
            rate.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        return apart.detach(), x.detach()


@dataclass(frozen=True)
class _Search:
    """For the images of one update, from several starts [B, C, H, W]."""

    update: Update
    steps: int  # imitated
    labels: NDArray[np.int64]  # [B]
    starts: "Sequence[Tensor]"
    ends: "list[tuple[float, Tensor]]" = field(default_factory=list)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Searches alike in these are made with the same arithmetic on the same model."""
        u = self.update
        own = (u.rate, u.decay, u.momentum) if self.steps > 1 else ()
        return id(u.start), frozenset(u.gradient), len(self.labels), self.steps, own


class _Row(NamedTuple):
    search: _Search
    start: "Tensor"


def roughness(x: "Tensor") -> "Tensor":
    """Total variation as in the authors' code: mean absolute difference of neighbours, [B, C, H, W]."""
    down, across = x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]
    total: Tensor = down.abs().mean() + across.abs().mean()
    return total
