"""The local training loop every method shares, and the handle through which losses see the model.

Momentum starts empty in every round; each epoch visits the data in a fresh order in
mini-batches with the last partial one kept (fl/training/batches.py); losses are batch means;
weight decay is added to the gradient. The optimiser is torch.optim.SGD itself, or Adam or AdamW by setting.

Everything a method supplies is a pure function of tensors (loss, correct), so that the same code
runs one client at a time or, stacked, many at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedaudit.fl.model import Net, State, unwrap
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.training.batches import has_batch_statistics, split_into_batches

PAD = 4  # pixels round an image before it is cropped
Params = dict[str, Tensor]
Constants = Mapping[str, Any]  # per-client tensors (or nested mappings of them) for the loss
F = TypeVar("F", bound=Callable[..., Any])
AfterEpoch = Callable[[int, Net], Sequence[str]]  # what to freeze after an epoch, which is counted from 1


class Handle:
    """The model inside a loss: features, head and logits with given weights, or the bound ones."""

    def __init__(self, net: Net, params: Mapping[str, Tensor] | None = None) -> None:
        self._net, self._params = net, params

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """Name -> the weights that the model is run with now; gradients flow to them."""
        return dict(self._net.named_parameters()) if self._params is None else self._params

    def features(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, D], the input of the last linear layer."""
        return self._call("features", x)

    def head(self, h: Tensor) -> Tensor:
        """[b, D] -> [b, C]."""
        return self._call("head", h)

    def __call__(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, C]."""
        return self._call("forward", x)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a batch, x [b, ...], y [b], by the model's task."""
        return self._call("loss", x, y)

    @property
    def task(self) -> Task:
        """What is wanted of the model."""
        return self._net.task

    def replace_weights(self, params: Mapping[str, Tensor]) -> "Handle":
        """The same model with other weights."""
        return Handle(self._net, params)

    def frozen(self, params: Mapping[str, Tensor]) -> "Handle":
        """The same model with other weights, as it is used: evaluation mode, without gradients."""
        return _Frozen(self._net, params)

    def head_weight(self) -> Tensor:
        """[C, D]: the proxies."""
        name = next(n for n, p in self._net.named_parameters() if p is _find_head_weight(self._net))
        return _find_head_weight(self._net) if self._params is None else self._params[name]

    def _call(self, part: str, *inputs: Tensor) -> Tensor:
        if self._params is None:
            out: Tensor = getattr(self._net, part)(*inputs)
            return out
        given = {f"net.{k}": v for k, v in self._net.shared_names.spread(self._params).items()}
        called = functional_call(_ModelPart(self._net, part), given, inputs, tie_weights=False)
        result: Tensor = called
        return result


class _Frozen(Handle):
    def _call(self, part: str, *inputs: Tensor) -> Tensor:
        training = self._net.training
        self._net.eval()
        try:
            with torch.no_grad():
                return super()._call(part, *inputs)
        finally:
            self._net.train(training)


class _ModelPart(nn.Module):
    """One part of a model as a module, which functional_call asks for."""

    def __init__(self, net: Net, part: str) -> None:
        super().__init__()
        self.net, self._whole, self._part = unwrap(net), (net,), part

    def forward(self, *inputs: Tensor) -> Tensor:
        out: Tensor = getattr(self._whole[0], self._part)(*inputs)
        return out


def _find_head_weight(net: Net) -> Tensor:
    return next(p for p in net.head.parameters() if p.dim() == 2)


def is_of_network(loss: F) -> F:
    """Marks a method's loss that is the network's own and nothing more."""
    loss.is_of_network = True  # type: ignore[attr-defined]
    return loss


class TrainingHooks(Protocol):
    """What the loop asks of a method."""

    config: Any

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor: ...

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        return grads

    def after_step(self, params: Params, const: Constants, rate: float) -> Params:
        return {}  # nothing moves once more

    def is_trainable(self, name: str) -> bool:
        return True


class PartTraining(TrainingHooks):
    """Training by a method's loss alone, with settings of its own, of the parameters that `trains` names."""

    def __init__(
        self, method: TrainingHooks, config: Any, trains: Callable[[str], bool] = lambda name: True
    ) -> None:
        self.config, self._method, self._trains = config, method, trains

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return self._method.loss(net, x, y, const)

    def is_trainable(self, name: str) -> bool:
        return self._trains(name)


@dataclass(frozen=True)
class Trained:
    """What local training gives: the new state (contiguous) and how it got there."""

    state: State
    steps: int
    loss: float  # mean training loss of the last epoch; a diagnostic that never leaves the client


def train(
    method: TrainingHooks,
    net: Net,
    start: State,
    x: Tensor,
    y: Tensor,
    const: Constants,
    order: torch.Generator,
    augment: str = "none",
    scale: float = 1.0,
    after_epoch: AfterEpoch | None = None,
    leaves_on: str = "cpu",
) -> Trained:
    """Train from `start` on x [n, ...] and y [n]; `net` is overwritten. `scale` multiplies the rate.

    `after_epoch` (epoch counted from 1, net) names parameters and buffers to freeze from then on: they get the
    values of `start` back, bit for bit, and leave the optimiser with their momentum; the others keep theirs.
    The new state comes to lie on the device `leaves_on`.
    """
    config = method.config
    bind(net, start)
    net.train()
    params = choose_trained(method, net)
    anchor = {k: p.detach().clone() for k, p in params.items()}
    optimiser = stepper(config, list(params.values()), config.lr * scale)
    handle, steps = Handle(net), 0
    sizes = split_into_batches(len(y), config.batch_size, joins=has_batch_statistics(net))
    losses: list[Tensor] = []
    for epoch in range(1, count_epochs(config, len(y)) + 1):
        losses = []
        permutation = torch.randperm(len(y), generator=order).to(y.device)
        for batch in torch.split(permutation, sizes):
            xb = x[batch]
            if augment == "crop_flip":
                xb = crop_flip(xb, order)
            loss = method.loss(handle, xb, y[batch], const)
            grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
            with torch.no_grad():
                named = {
                    k: torch.zeros_like(p) if g is None else g
                    for (k, p), g in zip(params.items(), grads, strict=True)
                }
                if config.grad_clip > 0:  # the raw gradient, before any correction (2.4, trap 4)
                    nn.utils.clip_grads_with_norm_(
                        _with_grads(params, named),
                        config.grad_clip,
                        nn.utils.get_total_norm(list(named.values())),
                    )
                named = method.correct(named, params, anchor, const)
            _with_grads(params, named)
            optimiser.step()
            with torch.no_grad():
                for k, moved in method.after_step(params, const, config.lr * scale).items():
                    params[k].copy_(moved)
            steps += 1
            losses.append(loss.detach())
        if after_epoch is not None and (frozen := after_epoch(epoch, net)):
            bind(net, {k: start[k] for k in frozen})
            for k in params.keys() & set(frozen):
                optimiser.state.pop(params.pop(k), None)
            optimiser.param_groups[0]["params"] = list(params.values())
    mean = float(torch.stack(losses).mean()) if losses else 0.0
    return Trained(snapshot(net, leaves_on), steps, mean)


def count_epochs(config: Any, examples: int) -> int:
    """Passes over a client's `examples` in a round; without `least_steps` any number of steps will do."""
    steps: int = max(1, -(-examples // config.batch_size))  # of one pass
    least, passes = int(getattr(config, "least_steps", 0)), int(config.local_epochs)
    return max(passes, -(-least // steps))


def choose_trained(method: TrainingHooks, net: Net) -> Params:
    """The parameters that a method trains, by name; those that the network itself has frozen stay as they are.

    Raises UserError where none is left.
    """
    found: Params = {k: p for k, p in net.named_parameters() if p.requires_grad and method.is_trainable(k)}
    if not found:
        raise UserError(
            "all parameters of the network that this method trains are frozen",
            hint="leave requires_grad on for some of them, or choose another method",
            key="federation.model",
        )
    return found


def stepper(config: Any, params: Sequence[Tensor], rate: float) -> torch.optim.Optimizer:
    """torch's own optimiser, empty as in every round; a config without the setting has SGD."""
    kind = getattr(config, "optimiser", "sgd")
    if kind == "sgd":
        momentum, decay = config.momentum, config.weight_decay
        return eager(torch.optim.SGD)(params, lr=rate, momentum=momentum, weight_decay=decay, foreach=True)
    made = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return eager(made)(params, lr=rate, weight_decay=config.weight_decay, foreach=True)


def _with_grads(params: Params, grads: Params) -> list[Tensor]:
    for name, p in params.items():
        p.grad = grads[name]
    return list(params.values())


def bind(net: Net, state: Mapping[str, Tensor]) -> None:
    """Copy a state into the model, keeping the model's memory layout; weights of several names by the first."""
    own = dict(net.named_parameters()) | dict(net.named_buffers())
    with torch.no_grad():
        for name, value in state.items():
            if name not in net.shared_names.others:
                own[name].copy_(value)


def snapshot(net: Net, device: str = "cpu") -> State:
    """A copy of the model's state in the ordinary layout."""
    return {
        k: v.detach().to(device, copy=True, memory_format=torch.contiguous_format)
        for k, v in net.state_dict().items()
    }


def crop_flip(x: Tensor, generator: torch.Generator, pad: int = PAD) -> Tensor:
    """Random crop after padding, and horizontal flip, each image by itself. [b, C, H, W]."""
    top, left = torch.randint(0, 2 * pad + 1, (2, len(x)), generator=generator)
    return crop_and_flip(x, top, left, torch.rand(len(x), generator=generator) < 0.5, pad)


def crop_and_flip(x: Tensor, top: Tensor, left: Tensor, flip: Tensor, pad: int = PAD) -> Tensor:
    """Images [b, C, H, W] padded by `pad`, cropped from row `top` and column `left`, mirrored where `flip`."""
    b, _, h, w = x.shape
    padded = nn.functional.pad(x, (pad,) * 4)
    rows = (top[:, None] + torch.arange(h)).to(x.device)  # [b, H]
    columns = left[:, None] + torch.arange(w)
    columns = torch.where(flip[:, None], columns.flip(1), columns).to(x.device)  # [b, W]
    each = torch.arange(b, device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
