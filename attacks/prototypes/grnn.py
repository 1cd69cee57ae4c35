"""GRNN: a generator without any data is fitted until its image has the features of the prototype.

Ren, Deng, Xie. GRNN: Generative Regression Neural Network. ACM TIST 2022. arXiv:2105.00529, Alg. 1,
which fits to gradients; here to features, as ReBaFL (sec. 5.6) reports to have done. One fresh
generator for each prototype, from one fixed random input, minimising

    ||(f(x) - p) / s||^2 + W(f(x), p) + tau TV(x).

The convolutional generator is a prior on its own: it re-identifies images of which only the
features are known, and needs no auxiliary data. A small residual is no success: it is as small where
five hundred images stand behind the prototype and none is recovered.

As in the authors' code, W ("Wasserstein distance") is the L2 norm (`distance: l2`); `sorted` is the
distance in one dimension that the paper names. RMSprop, rate 1e-4, momentum 0.99. Changed: s is the
root mean square of the client's prototypes, since an attacker without data knows no deviations;
the label is known and its branch left out; the image is cropped from the next power of two.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Extractor, Knowledge
from fedaudit.attacks.evaluation.decoder import initialise, tensor
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, PrototypeInversion
from fedaudit.attacks.evaluation.sources import Prototype, Source
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Position, ThreatModel

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]
INPUTS = 128  # of the generator
TOGETHER = 16  # generators that are run at once


class GRNN(PrototypeInversion):
    card = replace(
        Ridge.card,
        rounds="latest",  # a search takes minutes for one round
        title="GRNN inversion of prototypes",
        source="arXiv:2105.00529, Alg. 1, with features for gradients",
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        learns="images a client trained on, without any data of one's own",
        does_not_show="what an attacker with auxiliary images gets, which is more",
        effort=Effort(seconds=120, grows=("pixels",), settings=("steps",)),
    )

    @settings
    class Config(PrototypeInversion.Config):
        per_size: AtLeastOne = Field(
            default=16,
            description="prototypes to attack of each number of samples; each has a generator of its own",
        )
        steps: AtLeastOne = Field(default=1000, description="steps that fit one generator")
        distance: Literal["l2", "sorted"] = Field(
            default="l2",
            description="W: the L2 norm as in the authors' code, or the sorted distance that the paper names",
        )
        smoothness: Amount = Field(default=1e-3, description="tau: weight of the total variation")
        lr: Amount = Field(default=1e-4, description="step size of RMSprop")
        momentum: BelowOne = Field(default=0.99, description="momentum of RMSprop")

    def choose(self, sources: Sequence[Source]) -> list[Source]:
        """At most `per_size` prototypes of each origin and number of samples, from all clients alike."""
        left: dict[tuple[str, int | None], int] = {}
        kept: list[list[Prototype]] = [[] for _ in sources[: self.config.max_clients]]
        longest = max(len(s.prototypes) for s in sources)
        for i in range(longest):
            for source, chosen in zip(sources, kept, strict=False):
                if i < len(source.prototypes):
                    p = source.prototypes[i]
                    key = (p.origin, p.samples)
                    left[key] = left.get(key, self.config.per_size) - 1
                    if left[key] >= 0:
                        chosen.append(p)
        pairs = zip(sources, kept, strict=False)
        return [replace(s, prototypes=chosen) for s, chosen in pairs if chosen]

    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        import torch

        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        images = []
        for task in tasks:
            wanted = tensor(task.features, knowledge.device)
            scale = float(wanted.square().mean().sqrt()) or 1.0
            found = [
                self._fit(task.extractor, some, scale, knowledge.shape, generator)
                for some in torch.split(wanted, TOGETHER)
            ]
            images.append(torch.cat(found).cpu().numpy())
        return images

    def _fit(
        self,
        extractor: Extractor,
        wanted: "Tensor",
        scale: float,
        shape: tuple[int, ...],
        generator: "torch.Generator",
    ) -> "Tensor":
        """Images [k, C, H, W] after the last step; never chosen by looking at the truth.

        The k generators are stacked and run at once, which changes nothing but the time: their
        losses are added, and the optimiser treats each weight by itself.
        """
        import torch
        from torch.func import functional_call, stack_module_state, vmap

        c, model, device = self.config, extractor.module(), wanted.device
        nets = [build_generator(shape, generator).to(device) for _ in wanted]
        weights, _ = stack_module_state(nets)
        z = torch.randn((len(wanted), 1, INPUTS, 1, 1), generator=generator).to(device)
        draw = vmap(lambda w, v: functional_call(nets[0], w, (v,)))
        optimizer = eager(torch.optim.RMSprop)(list(weights.values()), lr=c.lr, momentum=c.momentum)
        x = torch.zeros(0)
        for _ in range(c.steps):
            optimizer.zero_grad()
            x = draw(weights, z)[:, 0, :, : shape[1], : shape[2]]
            found = model.features(x)
            gap = ((found - wanted) / scale).square().sum(1)
            if c.distance == "sorted":
                apart = (found.sort(1)[0] - wanted.sort(1)[0]).abs().mean(1) / scale
            else:
                apart = (gap + 1e-12).sqrt()
            loss = gap + apart + c.smoothness * total_variation(x)
            torch.autograd.backward(loss.sum())
            optimizer.step()
        return x.detach()


def total_variation(x: "Tensor") -> "Tensor":
    """Twice the mean squared difference of neighbours, down and across, as the authors' code has it.

    [k, C, H, W] -> [k].
    """
    down = (x[..., 1:, :] - x[..., :-1, :]).square().mean(dim=(1, 2, 3))
    across = (x[..., :, 1:] - x[..., :, :-1]).square().mean(dim=(1, 2, 3))
    return 2 * (down + across)


def build_generator(shape: tuple[int, ...], generator: "torch.Generator") -> "nn.Module":
    """[k, 128, 1, 1] -> [k, C, S, S], S the next power of two; each block doubles the side."""
    from torch import nn

    side = max(8, 2 ** math.ceil(math.log2(max(shape[1:]))))
    doublings = int(math.log2(side)) - 3  # of 32 channels, before the last block
    widths = [32 * 2**k for k in range(doublings, -1, -1)]

    def make() -> nn.Module:
        blocks: list[nn.Module] = [nn.ConvTranspose2d(INPUTS, 2 * widths[0], 4, 1, 0), nn.GLU(dim=1)]
        for before, after in zip(widths, [*widths[1:], shape[0]], strict=True):
            blocks += [
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Conv2d(before, 2 * after, 3, 1, 1, bias=False),
                # always the batch's own statistics: running ones are those of other images
                nn.BatchNorm2d(2 * after, track_running_stats=False),
                nn.GLU(dim=1),
            ]
        return nn.Sequential(*blocks, nn.Sigmoid())

    return initialise(make, generator)
