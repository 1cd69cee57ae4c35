"""Up-convolutional decoders and the loop that trains them, for the attacks that learn to invert.

A tenth of the examples decides which epoch is kept. Nothing here draws from a global generator.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.streams import seed_networks

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class DecoderTraining:
    """How long and how fast a decoder learns."""

    epochs: int
    least_steps: int  # where few images make an epoch short
    batch: int
    lr: float  # peak of the one-cycle rate


def build(inputs: int, shape: tuple[int, int, int], width: int, generator: "torch.Generator") -> "nn.Module":
    """The decoder [k, inputs] -> [k, C, H, W]; starts at a quarter of the side and doubles twice."""
    from torch import nn

    channels, height, across = shape
    h, w = -(-height // 4), -(-across // 4)
    a, b, c = width // 8, width // 16, width // 32
    return initialise(
        lambda: nn.Sequential(
            nn.Linear(inputs, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, a * h * w),
            nn.LeakyReLU(0.2),
            nn.Unflatten(1, (a, h, w)),
            nn.ConvTranspose2d(a, b, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(b, c, 4, 2, 1),
            nn.LeakyReLU(0.2),
            # a kernel of 3, or larger by the pixels that the rounded-up quarter has too many
            nn.Conv2d(c, channels, (3 + 4 * h - height, 3 + 4 * w - across), padding=1),
            nn.Sigmoid(),
        ),
        generator,
    )


def initialise(make: "Callable[[], nn.Module]", generator: "torch.Generator") -> "nn.Module":
    """A module whose initial weights come from `generator`; the global one stays as it was."""
    import torch

    with seed_networks(int(torch.randint(2**62, (), generator=generator))):
        return make()


def fit(
    module: "nn.Module",
    loss: "Callable[[Tensor], Tensor]",
    examples: int,
    training: DecoderTraining,
    generator: "torch.Generator",
) -> None:
    """Trains in place with Adam; `loss` maps row numbers to their mean loss.

    Leaves the weights of the epoch with the least loss on the tenth that was held back.
    """
    import torch

    order = torch.randperm(examples, generator=generator).to(find_device(module))
    held, used = order[: examples // 10], order[examples // 10 :]
    per_epoch = -(-len(used) // training.batch)
    epochs = max(training.epochs, -(-training.least_steps // per_epoch))
    optimizer = eager(torch.optim.Adam)(module.parameters(), lr=training.lr)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, training.lr, total_steps=epochs * per_epoch)
    best, kept = np.inf, copy.deepcopy(module.state_dict())
    for _ in range(epochs):
        shuffled = used[torch.randperm(len(used), generator=generator)]
        for rows in torch.split(shuffled, training.batch):
            optimizer.zero_grad()
            torch.autograd.backward(loss(rows))
            optimizer.step()
            rate.step()
        with torch.no_grad():
            error = sum(float(loss(r)) * len(r) for r in torch.split(held, 500))
        if error <= best:
            best, kept = error, copy.deepcopy(module.state_dict())
    module.load_state_dict(kept)


def tensor(array: Floats, device: "str | torch.device") -> "Tensor":
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(device)


def find_device(module: "nn.Module") -> "torch.device":
    """Where its weights lie; the processor where it has none."""
    import torch

    return next((p.device for p in module.parameters()), torch.device("cpu"))
