"""Up-convolutional decoders and the loop that fits them, for the attacks that learn to invert.

Everything that is fitted stops by one rule. A tenth of the examples, HELD_OUT at most, is held out: the adversary
made their features too, and so sees how well it inverts what it was never fitted on. Their loss is looked at
every LOOK steps. The rate stays until that has fallen by less than GAIN in PATIENCE looks; then it falls to 0, in
FALL of the steps taken so far. The settings of an attack say how many epochs all that may take at most, and the
rate falls early enough to end with them. The weights of the look with the least loss are kept.

On an accelerator networks that are alike are fitted side by side, with the same draws as one after another, in
which a processor fits them. One that stopped waits for the others with its weights.

Nothing here draws from a global generator.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.searches import run_alike
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.streams import seed_networks

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]
T = TypeVar("T")

HELD_OUT = 1000
AT_ONCE = 500  # of those held out
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


def hold_out(examples: int, generator: "torch.Generator") -> Rows:
    """Holds out a tenth of so many, by chance; a network that is fitted in stages needs the same in all.

    Drawn, and kept, on the processor.
    """
    import torch

    order, few = torch.randperm(examples, generator=generator), min(HELD_OUT, examples // 10)
    return Rows(order[few:], order[:few])


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What networks learn: targets [N, ...] from inputs [N, ...], which each has of its own."""

    targets: "Tensor"  # on the device
    rows: Rows
    loss: "Callable[..., Tensor]"  # mean [] of networks, their inputs and targets of b rows, and noise
    noise: Sequence[int] = ()  # columns of standard normal numbers [b, columns] that the loss takes


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Networks that learn; they have weights and no other state."""

    networks: "nn.Module"  # on the device
    inputs: "Tensor"  # on the processor
    generator: "torch.Generator"  # of batches and noise; where several are fitted together, a copy of it draws

    @property
    def kind(self) -> Hashable:
        """Those alike in this are fitted side by side."""
        return self.inputs.shape, *(p.shape for p in self.networks.parameters())


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


def divide(items: Sequence[T], device: str) -> list[Sequence[T]]:
    """Parts that are made one after another: on a processor of one item each, on an accelerator all at once."""
    import torch

    return [[item] for item in items] if torch.device(device).type == "cpu" else [items]


def fit(fits: Iterable[Fit], lesson: Lesson, training: DecoderTraining) -> "list[nn.Module]":
    """The networks, trained in place with Adam, each until the rule above stops it."""
    together, each = (partial(do, lesson=lesson, training=training) for do in (_fit_together, _fit_each))
    return run_alike(fits, lesson.targets.device, lambda f: f.kind, together, each)


def _fit_each(fits: Iterable[Fit], lesson: Lesson, training: DecoderTraining) -> "list[nn.Module]":
    return [_fit_alone(f, lesson, training) for f in fits]


def _fit_alone(f: Fit, lesson: Lesson, training: DecoderTraining) -> "nn.Module":
    import torch

    from fedaudit.fl.training.layout import channels_last

    x, y = f.inputs.to(lesson.targets.device), lesson.targets
    weights = [*channels_last(f.networks).parameters()]
    adam = eager(torch.optim.Adam)(weights, lr=training.lr, fused=True)

    def measure(rows: "Tensor", *noise: "Tensor") -> "Tensor":
        return lesson.loss(f.networks, x[rows[0]], y[rows[0]], *(z[0] for z in noise)).reshape(1)

    def take_step(scales: Sequence[float]) -> None:
        adam.param_groups[0]["lr"] = training.lr * scales[0]
        adam.step()
        adam.zero_grad()

    views = [w.detach()[None] for w in weights]
    for w, best in zip(views, _descend([f.generator], views, measure, take_step, lesson, training), strict=True):
        w.copy_(best)
    return f.networks


def _fit_together(fits: Sequence[Fit], lesson: Lesson, training: DecoderTraining) -> "list[nn.Module]":
    import torch
    from torch import nn
    from torch.func import functional_call, vmap

    if len(fits) < 2:
        return _fit_each(fits, lesson, training)
    first, y = fits[0].networks, lesson.targets

    class Asked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.networks = first

        def forward(self, *given: "Tensor") -> "Tensor":
            return lesson.loss(first, *given)

    asked, names = Asked(), [f"networks.{name}" for name, _ in first.named_parameters()]

    def run(weights: "Sequence[Tensor]", x: "Tensor", rows: "Tensor", *noise: "Tensor") -> "Tensor":
        given = dict(zip(names, weights, strict=True))
        found: Tensor = functional_call(asked, given, (x[rows], y[rows], *noise), tie_weights=False)
        return found

    weights = [torch.stack(of).detach() for of in zip(*(f.networks.parameters() for f in fits), strict=True)]
    adam, stacked = StackedAdam([w.requires_grad_() for w in weights], training.lr), vmap(run)
    x = torch.stack([f.inputs for f in fits]).to(y.device)

    def measure(rows: "Tensor", *noise: "Tensor") -> "Tensor":
        found: Tensor = stacked(weights, x, rows, *noise)
        return found

    generators = [f.generator.clone_state() for f in fits]  # whoever has to begin again draws the same
    best = _descend(generators, [w.detach() for w in weights], measure, adam.take_step, lesson, training)
    for f, *found in zip(fits, *best, strict=True):
        for p, w in zip(f.networks.parameters(), found, strict=True):
            p.detach().copy_(w)
    return [f.networks for f in fits]


def _descend(
    generators: "Sequence[torch.Generator]",
    weights: "Sequence[Tensor]",
    measure: "Callable[..., Tensor]",
    take_step: Callable[[Sequence[float]], None],
    lesson: Lesson,
    training: DecoderTraining,
) -> "list[Tensor]":
    """The weights of each network's look with the least loss.

    Everything has a row for each network.

    Args:
        generators: Of batches and noise.
        weights: That move.
        measure: Row numbers and noise to losses [networks].
        take_step: Takes a step down their sum, at these parts of the full rate.
        lesson: What is learnt.
        training: How long at most, and how fast.
    """
    import torch

    rows, device, everyone = lesson.rows, lesson.targets.device, range(len(generators))

    def gather(each: "Iterable[Tensor]") -> "Tensor":
        return torch.stack([*each]).to(device, non_blocking=True)

    def draw(examples: int, whose: Collection[int]) -> "list[Tensor]":
        """Noise of these networks, none of the others, whose losses are not read."""

        def draw_one(i: int, columns: int) -> "Tensor":
            shape = (examples, columns)
            return torch.randn(shape, generator=generators[i]) if i in whose else torch.zeros(shape)

        return [gather(draw_one(i, columns) for i in everyone) for columns in lesson.noise]

    most = max(training.epochs * -(-len(rows.fitted) // training.batch), training.least_steps)
    schedules = [FallingRate(most) for _ in everyone]
    held_out = torch.split(gather(rows.held_out for _ in everyone), AT_ONCE, 1)
    least, kept, batches = [np.inf for _ in everyone], [w.clone() for w in weights], list[torch.Tensor]()
    for step in range(1, most + 1):
        if not batches:
            orders = (torch.randperm(len(rows.fitted), generator=g) for g in generators)
            shuffled = gather(rows.fitted[order] for order in orders)
            batches = [*torch.split(shuffled, training.batch, 1)][::-1]
        batch = batches.pop()
        torch.autograd.backward(measure(batch, *draw(batch.shape[1], everyone)).sum())
        take_step([s.scale_rate(step) for s in schedules])
        looking = [i for i, s in enumerate(schedules) if step <= s.last and (step == s.last or not step % LOOK)]
        if not looking:
            continue
        with torch.no_grad():
            errors = [measure(r, *draw(r.shape[1], looking)).double() * r.shape[1] for r in held_out]
            every = torch.stack(errors).sum(0).cpu().tolist()
        better = [i in looking and every[i] <= least[i] for i in everyone]
        if any(better):
            least = [e if b else before for e, b, before in zip(every, better, least, strict=True)]
            gained = gather([torch.tensor(better)])[0]
            kept = [torch.where(_widen(gained, w), w, k) for w, k in zip(weights, kept, strict=True)]
        for i in looking:
            schedules[i].look(step, every[i])
        if all(step >= s.last for s in schedules):
            break
    return kept


class StackedAdam:
    """torch's Adam on weights with a row for each network, at a rate of each row's own.

    A move of Adam is proportional to the rate, on which nothing that it remembers depends.
    """

    def __init__(self, weights: "Sequence[Tensor]", lr: float) -> None:
        import torch

        self._weights, self._moves = weights, [torch.zeros_like(w) for w in weights]
        self._adam = eager(torch.optim.Adam)(self._moves, lr=lr, fused=True)

    def take_step(self, scales: Sequence[float]) -> None:
        """A step down the gradients, which are used up, at these parts of the rate."""
        import torch

        for w, moved in zip(self._weights, self._moves, strict=True):
            moved.grad, w.grad = w.grad, None
        torch._foreach_zero_(self._moves)
        self._adam.step()
        parts = torch.tensor(scales).to(self._moves[0].device, non_blocking=True)
        with torch.no_grad():
            for w, moved in zip(self._weights, self._moves, strict=True):
                w.addcmul_(moved, _widen(parts, w))


def _widen(values: "Tensor", weights: "Tensor") -> "Tensor":
    """A value [networks] of each row of weights [networks, ...]."""
    return values.view(-1, *[1] * (weights.dim() - 1))


class FallingRate:
    """The rate of each step, and which is the last: as the losses of held-out examples say."""

    def __init__(self, most: int) -> None:
        """`most`: steps, which are all that are taken where each look is better than those before."""
        self.last, self._fall = most, most - int(most * FALL / (1 + FALL))
        self._losses: list[float] = []

    def scale_rate(self, step: int) -> float:
        """Times the full rate, of a step that is counted from 1; 0 after the last."""
        falling = (self.last + 1 - step) / max(1, self.last + 1 - self._fall)
        return max(0.0, min(1.0, step / WARM, falling))

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
