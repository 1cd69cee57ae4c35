"""DP-SGD: local training whose every step bounds what one example can change, and adds noise.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. Deep Learning with Differential Privacy. CCS 2016.
arXiv:1607.00133, Alg. 1. In every step each example is in the batch with probability q, on its own;

    g <- (sum over the batch of clip(g_i, C) + N(0, (z C)^2)) / L

Changes: L is the method's batch_size instead of q n, because the number of examples n is itself private
(opacus#571); and the number of steps is a setting, not a number of epochs, for the same reason. A
method's loss is taken one example at a time, so that a penalty on the weights is clipped with it.
Clipping and scaling are Opacus's DPOptimizer; its noise is replaced by the cipher's (fl/recording/noise.py).
Whether an example is in a batch, and how it is cropped, is drawn for its own record and the step alone, and
noise from a stream that nothing else draws from: one record less leaves all others' draws as they are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.cipher import RecordCoins
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.local import (
    PAD,
    Constants,
    Handle,
    Params,
    Trained,
    TrainingHooks,
    bind,
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


def train(
    method: TrainingHooks,
    private: PrivateTraining,
    net: Net,
    start: State,
    x: Tensor,
    y: Tensor,
    const: Constants,
    draws: RecordDraws,
    noise: NoiseSource,
    augment: str = "none",
    scale: float = 1.0,
    *,
    line: Release,
) -> Trained:
    """As fl.local.train, privately; `line` is the ledger's. Raises UserError for models whose examples are not
    separable."""
    _check(net, method)
    bind(net, start)
    net.train()
    params: Params = {k: p for k, p in net.named_parameters() if method.is_trainable(k)}
    fixed = {k: v for k, v in net.state_dict().items() if k not in params}
    anchor = {k: p.detach().clone() for k, p in params.items()}
    optimiser = _make_optimiser(method.config, private, params, scale)

    def loss(weights: Params, xi: Tensor, yi: Tensor) -> Tensor:
        handle = Handle(net, {**fixed, **weights})
        return method.loss(handle, xi[None], yi[None], const)

    each = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
    mean = 0.0
    for step in range(private.steps):
        drawn = draws.draw(step)
        chosen = torch.nonzero(drawn.coins < private.sample_rate)[:, 0]
        batch = chosen.to(y.device)
        grads: dict[str, Tensor] = {k: p.new_zeros((0, *p.shape)) for k, p in params.items()}
        if len(batch):
            xb = drawn.crop(x[batch], chosen) if augment == "crop_flip" else x[batch]
            weights = {k: p.detach() for k, p in params.items()}
            grads, losses = each(weights, xb, y[batch])
            mean = float(losses.mean())
        for name, p in params.items():
            # what is not finite counts as nothing: it would take the clip, and its example would be seen
            p.grad_sample = grads[name].detach().nan_to_num(0.0, 0.0, 0.0)  # type: ignore[attr-defined]
        _add_noise(optimiser, params, noise, line)
        with torch.no_grad():
            noised = {k: p.grad for k, p in params.items() if p.grad is not None}
            for name, grad in method.correct(noised, params, anchor, const).items():
                params[name].grad = grad
        optimiser.original_optimizer.step()
        optimiser.zero_grad()
    for p in params.values():  # the model is used again, by others
        p.grad_sample = p.summed_grad = None  # type: ignore[attr-defined]
    return Trained(snapshot(net), private.steps, mean)


def _add_noise(optimiser: "DPOptimizer", params: Params, noise: NoiseSource, line: Release) -> None:
    """What DPOptimizer.pre_step() does, with noise of the cipher's in the place of its own."""
    optimiser.clip_and_accumulate()
    sums = {name: p.summed_grad.view_as(p) for name, p in params.items()}  # type: ignore[attr-defined]
    noised = noise.release(line, sums)
    for name, p in params.items():
        p.grad = noised[name]
    optimiser.scale_grad()


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


def _check(net: Net, method: TrainingHooks) -> None:
    if any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in net.modules()):
        raise UserError(
            "dp_sgd cannot train a model with batch normalisation, where examples share statistics",
            hint="choose a model with group normalisation, such as resnet18 with norm: group",
        )
    if method.config.grad_clip > 0:
        raise UserError(
            f"method.grad_clip {method.config.grad_clip} clips batches, and dp_sgd clips examples",
            hint="set method.grad_clip to 0",
        )
