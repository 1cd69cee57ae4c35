"""Up-convolutional decoders and the loop that fits them, for the attacks that learn to invert.

Everything that is fitted stops by one rule. A tenth of the examples, HELD_OUT at most, is held out: the adversary
made their features too, and so sees how well it inverts what it was never fitted on. Their loss is looked at
every LOOK steps. The rate stays until that has fallen by less than GAIN in PATIENCE looks; then it falls to 0, in
FALL of the steps taken so far. The settings of an attack say how many epochs all that may take at most, and the
rate falls early enough to end with them. The weights of the look with the least loss are kept.

Nothing here draws from a global generator.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.streams import seed_networks

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]

HELD_OUT = 1000
LOOK, PATIENCE, GAIN = 50, 2, 0.03
WARM, FALL = 50, 0.25  # steps in which the rate rises, and share of the steps so far in which it falls


@dataclass(frozen=True, kw_only=True)
class DecoderTraining:
    """How long a decoder learns at most, and how fast."""

    epochs: int
    least_steps: int  # that it may take where few images make an epoch short
    batch: int
    lr: float  # until it falls


class Rows(NamedTuple):
    """Numbers of the examples that are fitted, and of those that are held out."""

    fitted: "Tensor"
    held_out: "Tensor"


def hold_out(examples: int, generator: "torch.Generator", device: "torch.device | str" = "cpu") -> Rows:
    """Holds out a tenth of so many, by chance; a network that is fitted in stages needs the same in all."""
    import torch

    order, few = torch.randperm(examples, generator=generator).to(device), min(HELD_OUT, examples // 10)
    return Rows(order[few:], order[:few])


def build(inputs: int, shape: tuple[int, ...], width: int, generator: "torch.Generator") -> "nn.Module":
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
    rows: Rows,
    training: DecoderTraining,
    generator: "torch.Generator",
) -> None:
    """Trains in place with Adam, until the rule above stops it; `loss` maps row numbers to their mean loss."""
    import torch

    from fedaudit.fl.training.layout import channels_last

    channels_last(module)
    per_epoch = -(-len(rows.fitted) // training.batch)
    most = max(training.epochs * per_epoch, training.least_steps)
    schedule = FallingRate(most)
    optimizer = eager(torch.optim.Adam)(module.parameters(), lr=training.lr, fused=True)
    best, kept = np.inf, copy.deepcopy(module.state_dict())
    batches: Iterator[Tensor] = iter(())
    for step in range(1, most + 1):
        if (batch := next(batches, None)) is None:
            shuffled = rows.fitted[torch.randperm(len(rows.fitted), generator=generator)]
            batches = iter(torch.split(shuffled, training.batch))
            batch = next(batches)
        for group in optimizer.param_groups:
            group["lr"] = training.lr * schedule.scale_rate(step)
        optimizer.zero_grad()
        torch.autograd.backward(loss(batch))
        optimizer.step()
        if step % LOOK and step < schedule.last:
            continue
        with torch.no_grad():
            error = sum(float(loss(r)) * len(r) for r in torch.split(rows.held_out, 500))
        if error <= best:
            best, kept = error, copy.deepcopy(module.state_dict())
        schedule.look(step, error)
        if step >= schedule.last:
            break
    module.load_state_dict(kept)


class FallingRate:
    """The rate of each step, and which is the last: as the losses of held-out examples say."""

    def __init__(self, most: int) -> None:
        """`most`: steps, which are all that are taken where each look is better than those before."""
        self.last, self._fall = most, most - int(most * FALL / (1 + FALL))
        self._losses: list[float] = []

    def scale_rate(self, step: int) -> float:
        """Times the full rate, of a step that is counted from 1."""
        falling = (self.last + 1 - step) / max(1, self.last + 1 - self._fall)
        return min(1.0, step / WARM, falling)

    def look(self, step: int, loss: float) -> None:
        """After so many steps held-out examples had this loss: where it no longer falls, the rate does."""
        self._losses.append(loss)
        before, recent = self._losses[:-PATIENCE], self._losses[-PATIENCE:]
        if step < self._fall and before and min(recent) > (1 - GAIN) * min(before):
            self.last, self._fall = step + math.ceil(FALL * step), step


def tensor(array: Floats, device: "str | torch.device") -> "Tensor":
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to(device)


def find_device(module: "nn.Module") -> "torch.device":
    """Where its weights lie; the processor where it has none."""
    import torch

    return next((p.device for p in module.parameters()), torch.device("cpu"))
