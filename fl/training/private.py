"""DP-SGD: local training whose every step bounds what one example can change, and adds noise.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. Deep Learning with Differential Privacy. CCS 2016.
arXiv:1607.00133, Alg. 1. In every step each example is in the batch with probability q, on its own;

    g <- (sum over the batch of clip(g_i, C) + N(0, (z C)^2)) / L

Changes: L is the method's batch_size instead of q n, because the number of examples n is itself private
(opacus#571); and the number of steps is a setting, not a number of epochs, for the same reason. A
method's loss is taken one example at a time, so that a penalty on the weights is clipped with it.
Clipping is Opacus's DPOptimizer, and of networks of a million weights ghost clipping (fl/training/ghosts.py); the
noise is the cipher's (fl/recording/noise.py).
Whether an example is in a batch, and how it is cropped, is drawn for its own record and the step alone, and
noise from a stream that nothing else draws from: one record less leaves all others' draws as they are.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.cipher import RecordCoins
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.training import ghosts
from fedaudit.fl.training.batches import has_batch_statistics
from fedaudit.fl.training.local import (
    PAD,
    Constants,
    Handle,
    Params,
    Trained,
    TrainingHooks,
    bind,
    choose_trained,
    crop_and_flip,
    snapshot,
)

COPY_BITS = 40  # of a key, above the rows of a training set

if TYPE_CHECKING:
    from opacus.optimizers import DPOptimizer


@dataclass(frozen=True, kw_only=True)
class PrivateTraining:
    """How each client trains; public, and the same for all."""

    clip_norm: float  # C, of one example's gradient over all trained weights
    noise_multiplier: float  # z
    sample_rate: float  # q
    steps: int  # of one local training

    def line(self, round: int, sender: str, kind: str, observers: tuple[str, ...]) -> Release:
        """How the ledger accounts for one training of a client."""
        return Release(
            round=round,
            kind=kind,
            sender=sender,
            observers=observers,
            mechanism="gaussian" if self.noise_multiplier else "none",
            noise_std=self.noise_multiplier * self.clip_norm,
            sensitivity=self.clip_norm,
            unit="record",
            adjacency="add_or_remove_one",
            sampling="poisson",
            sample_rate=self.sample_rate,
            coin=EACH,
            participation_seen_by=(),
            count=self.steps,
            steps=self.steps,
            clip_norm=self.clip_norm,
            clip_of="record",
            derived="clip",
            clipped="on each example's gradient, in every local step; what is not finite counts as 0",
            source="dp_sgd",
        )


class StepSample(NamedTuple):
    """What a step drew for each record."""

    coins: Tensor  # [n] float64 in [0, 1)
    rest: Tensor  # [n] int64 >= 0

    def crop(self, x: Tensor, places: Tensor) -> Tensor:
        """Images [b, C, H, W] of the records at these places, each cropped and mirrored by its own draw."""
        rest, sides = self.rest[places], 2 * PAD + 1
        top, left, flip = rest % sides, rest // sides % sides, rest // sides**2 % 2
        return crop_and_flip(x, top, left, flip == 1, PAD)


@dataclass(frozen=True)
class RecordDraws:
    """Coins and crops of a client's records in one local training."""

    source: RecordCoins
    records: Tensor  # [n] int64

    def draw(self, step: int) -> StepSample:
        words = self.source.draw_words(self._hash_records(), step)
        coins = torch.from_numpy((words[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return StepSample(coins, torch.from_numpy((words[:, 1] >> np.uint64(1)).astype(np.int64)))

    def _hash_records(self) -> NDArray[np.int64]:
        """[n] one for each record; copies of a record that a client has more than once have keys of their own."""
        records = self.records.numpy()
        order = np.argsort(records, kind="stable")
        _, counts = np.unique(records, return_counts=True)
        keys = np.empty(len(records), np.int64)
        copy = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys[order] = records[order] + (copy << COPY_BITS)
        return keys


@dataclass(frozen=True, kw_only=True)
class Trainee:
    """What one client brings to a private training."""

    start: State
    x: Tensor  # [n, ...] normalised
    y: Tensor  # [n]
    const: Constants
    draws: RecordDraws
    noise: NoiseSource
    line: Release  # the ledger's
    augment: str = "none"


def train(
    method: TrainingHooks, private: PrivateTraining, net: Net, trainees: Sequence[Trainee], scale: float = 1.0
) -> list[Trained]:
    """As fl.local.train, privately, for each client; `net` is overwritten.

    Gradients of all clients' examples are computed in one call, each at the weights of its own client; those of a
    large network client by client. Raises UserError for models whose examples are not separable.
    """
    _check(net, method)
    nets = [net, *(copy.deepcopy(net) for _ in trainees[1:])]
    clients = [_Learner(method, private, n, t, scale) for n, t in zip(nets, trainees, strict=True)]
    if clients[0].has_ghosts:
        for client in clients:
            for step in range(private.steps):
                client.step_by_ghosts(*client.draw_batch(step))
        return [Trained(snapshot(c.net), private.steps, c.loss) for c in clients]

    def loss(weights: Params, fixed: State, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return method.loss(Handle(net, {**fixed, **weights}), x[None], y[None], const)

    for step in range(private.steps):
        batches = [c.draw_batch(step) for c in clients]
        sizes = [len(y) for _, y in batches]
        drawn = [(c.weights(), c.fixed, *batch, c.const) for c, batch in zip(clients, batches, strict=True)]
        made = iter(_differentiate(loss, [own for own, n in zip(drawn, sizes, strict=True) if n]))
        for client, size in zip(clients, sizes, strict=True):
            client.step(*(next(made) if size else (None, None)))
    return [Trained(snapshot(c.net), private.steps, c.loss) for c in clients]


def _differentiate(loss: Callable[..., Tensor], drawn: Sequence[tuple[Any, ...]]) -> list[tuple[Params, Tensor]]:
    """Gradients and losses of each client's examples, one by one.

    A client's weights are copied for each of its examples, so that batches of whatever sizes become one.
    """
    derive = torch.func.grad_and_value(loss)
    if len(drawn) < 2:
        each = torch.func.vmap(derive, in_dims=(None, None, 0, 0, None), randomness="different")
        return [each(*own) for own in drawn]
    sizes = [len(y) for _, _, _, y, _ in drawn]
    owner = torch.arange(len(drawn)).repeat_interleave(torch.tensor(sizes))

    def copy_for_examples(*leaves: Tensor) -> Tensor:
        return torch.stack([v.to(leaves[0].device) for v in leaves])[owner.to(leaves[0].device)]

    weights, fixed, xs, ys, consts = zip(*drawn, strict=True)
    parts = [tree_map(copy_for_examples, *own) for own in (weights, fixed, consts)]
    each = torch.func.vmap(derive, randomness="different")
    grads, losses = each(parts[0], parts[1], torch.cat(xs), torch.cat(ys), parts[2])
    split = {k: torch.split(g, sizes) for k, g in grads.items()}
    return [({k: g[i] for k, g in split.items()}, v) for i, v in enumerate(torch.split(losses, sizes))]


class _Learner:
    """A client's network and optimiser on the way through the steps."""

    def __init__(
        self, method: TrainingHooks, private: PrivateTraining, net: Net, trainee: Trainee, scale: float
    ) -> None:
        bind(net, trainee.start)
        net.train()
        self.net, self.const, self.loss = net, trainee.const, 0.0
        self._params = choose_trained(method, net)
        self.fixed = {k: v for k, v in net.state_dict().items() if k not in self._params}
        self._anchor = {k: p.detach().clone() for k, p in self._params.items()}
        self._optimiser = _make_optimiser(method.config, private, self._params, scale)
        self._method, self._trainee, self._private = method, trainee, private
        self.has_ghosts = ghosts.fits(method, net, self._params, trainee.x)

    def weights(self) -> Params:
        return {k: p.detach() for k, p in self._params.items()}

    def draw_batch(self, step: int) -> tuple[Tensor, Tensor]:
        """x [b, ...] and y [b] of a step; b may be 0."""
        t, drawn = self._trainee, self._trainee.draws.draw(step)
        chosen = torch.nonzero(drawn.coins < self._private.sample_rate)[:, 0]
        x, y = t.x[chosen.to(t.y.device)], t.y[chosen.to(t.y.device)]
        return drawn.crop(x, chosen) if t.augment == "crop_flip" else x, y

    def step(self, grads: Params | None, losses: Tensor | None) -> None:
        """Noised gradients of a batch's examples, or of none, move the weights."""
        for name, p in self._params.items():
            own = p.new_zeros((0, *p.shape)) if grads is None else grads[name].detach()
            # what is not finite counts as nothing: it would take the clip, and its example would be seen
            p.grad_sample = own.nan_to_num(0.0, 0.0, 0.0)  # type: ignore[attr-defined]
        self._optimiser.clip_and_accumulate()
        self._move({k: p.summed_grad.view_as(p) for k, p in self._params.items()}, losses)  # type: ignore[attr-defined]
        for p in self._params.values():  # the model is used again, by others
            p.grad_sample = p.summed_grad = None  # type: ignore[attr-defined]

    def step_by_ghosts(self, x: Tensor, y: Tensor) -> None:
        """As step(), of a batch that may be empty, without a gradient of each example."""
        if len(y):
            self._move(*ghosts.sum_clipped(self.net, self._params, x, y, self._private.clip_norm))
        else:
            self._move({k: torch.zeros_like(p) for k, p in self._params.items()}, None)

    def _move(self, sums: Params, losses: Tensor | None) -> None:
        """Clipped gradients, added up, get noise and move the weights."""
        if losses is not None:
            self.loss = float(losses.mean())
        noised = self._trainee.noise.release(self._trainee.line, sums)
        with torch.no_grad():
            noised = {k: v / self._method.config.batch_size for k, v in noised.items()}
            corrected = self._method.correct(noised, self._params, self._anchor, self.const)
            for name, grad in corrected.items():
                self._params[name].grad = grad
        self._optimiser.original_optimizer.step()
        for p in self._params.values():
            p.grad = None


def _make_optimiser(config: Any, private: PrivateTraining, params: Params, scale: float) -> "DPOptimizer":
    from opacus.optimizers import DPOptimizer

    plain = eager(torch.optim.SGD)(
        params.values(), lr=config.lr * scale, momentum=config.momentum, weight_decay=config.weight_decay
    )
    return DPOptimizer(
        plain,
        noise_multiplier=0.0,  # it draws none itself
        max_grad_norm=private.clip_norm,
        expected_batch_size=config.batch_size,
        loss_reduction="mean",
    )


def require_separable(task: Task) -> None:
    """Raise UserError for a task whose loss is no sum over examples: no example has a gradient of its own."""
    if not task.separable:
        raise UserError(
            f"dp_sgd clips each example's gradient, and the loss of {task!r} is no sum over examples",
            hint="protect whole uploads with dp_gaussian, or train on another task: whether it happened in time",
            key="protections",
        )


def _check(net: Net, method: TrainingHooks) -> None:
    require_separable(net.task)
    if has_batch_statistics(net):
        raise UserError(
            "dp_sgd cannot train a model with batch normalisation, where examples share statistics",
            hint="choose a model with group normalisation, such as resnet18 with norm: group",
        )
    if method.config.grad_clip > 0:
        raise UserError(
            f"method.grad_clip {method.config.grad_clip} clips batches, and dp_sgd clips examples",
            hint="set method.grad_clip to 0",
        )
