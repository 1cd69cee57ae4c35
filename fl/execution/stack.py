"""A stack: the weights of many clients, a row each, moved by one vmapped step for all of them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_map

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.transfer import fetch
from fedaudit.fl.training.local import Handle, Params, Trained, choose_trained
from fedaudit.fl.training.private import PrivateTraining


class Trains(Protocol):
    """What clients train with, all alike: a site, or an adversary's own."""

    @property
    def method(self) -> RoundMethod: ...

    @property
    def net(self) -> Net: ...

    @property
    def device(self) -> str: ...

    @property
    def private(self) -> PrivateTraining | None: ...


class Stack:
    """The weights of clients, a row each, and what moves them."""

    def __init__(self, site: Trains, clients: list[Client], const: Any) -> None:
        method, config, net = site.method, site.method.config, site.net
        net.train()
        start = {k: v.to(site.device) for k, v in clients[0].start.items()}
        trainable = list(choose_trained(method, net))
        moving = [k for k, _ in net.named_buffers() if k in start]  # statistics of normalisation
        moving += [k for k in start if k not in (*trainable, *moving) and _differs(k, clients)]
        fixed = {k: v for k, v in start.items() if k not in (*trainable, *moving)}
        self._params, self._buffers = (
            {k: torch.stack([c.start[k].to(site.device) for c in clients]) for k in names}
            for names in (trainable, moving)
        )
        self._anchor = {k: v.clone() for k, v in self._params.items()}
        self._const, self._fixed, self._net, self._method = const, fixed, net, method
        self._leaves_on = clients[0].leaves_on
        self._rate = config.lr * config.lr_decay ** clients[0].round
        self._losses = torch.zeros(len(clients), device=site.device)  # summed over the last epoch
        self._optimiser = _StackedOptimiser(config, self._params, self._rate, torch.zeros_like(self._losses))

        def loss(p: Params, b: Params, x: Tensor, y: Tensor, c: Any) -> tuple[Tensor, Params]:
            own = {k: v.clone() for k, v in b.items()}  # which the network changes in place
            return method.loss(Handle(net, {**fixed, **own, **p}), x, y, c), own

        self._compute_losses = vmap(loss, randomness="different")
        self._correct = vmap(method.correct)

    def advance(self, rows: Tensor, x: Tensor, y: Tensor, last: Tensor) -> None:
        """A step of these rows with a batch each; `last` says whether it is of a client's last epoch."""
        everything = [self._params, self._buffers, self._anchor, self._const]
        own, statistics, first, const = _take_rows(everything, rows, len(self._losses))
        grads, values, moved = self._differentiate(own, statistics, x, y, const)
        if (limit := self._method.config.grad_clip) > 0:
            grads = vmap(partial(_clip, limit))(grads)
        grads = self._correct(grads, own, first, const)
        own = self._optimiser.step(own, {k: g.detach() for k, g in grads.items()}, rows)
        own |= self._method.after_step(own, const, self._rate)
        for whole, some in ((self._params, own), (self._buffers, moved)):
            for k, v in some.items():
                whole[k][rows] = v.detach()
        self._losses[rows] += values * last

    def _differentiate(self, own: Params, *rest: Any) -> tuple[Params, Tensor, Params]:
        """Gradients, losses and statistics of each row: a loss depends on the weights of its own row alone.

        Not by torch.func.grad, which loads torch.compile's front end, a second and a half in each process.
        """
        leaves = {k: p.detach().requires_grad_() for k, p in own.items()}
        losses, moved = self._compute_losses(leaves, *rest)
        grads = torch.autograd.grad(
            losses.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return dict(zip(leaves, grads, strict=True)), losses.detach(), moved

    def finish(self, steps: Sequence[int], lasts: Sequence[int]) -> list[Trained]:
        """What each client has after so many steps, so many of them in its last epoch."""
        bring = fetch if self._leaves_on == "cpu" else dict[str, Tensor]
        moved, fixed = (
            bring({k: v.detach() for k, v in values.items()})
            for values in ({**self._params, **self._buffers}, self._fixed)
        )
        others = self._net.shared_names.others
        return [
            Trained(
                {k: _take_row(moved, fixed, others.get(k, k), i) for k in self._net.state_dict()}, n, total / m
            )
            for i, (n, m, total) in enumerate(zip(steps, lasts, self._losses.tolist(), strict=True))
        ]


class _StackedOptimiser:
    """torch's optimisers, as stepper() makes them, on rows of stacked weights, each with steps of its own."""

    def __init__(self, config: Any, params: Params, rate: float, steps: Tensor) -> None:
        self._kind, self._rate = getattr(config, "optimiser", "sgd"), rate
        self._decay, self._momentum = config.weight_decay, config.momentum
        slots = 2 if self._kind != "sgd" else int(bool(config.momentum))
        self._state = {k: [torch.zeros_like(p) for _ in range(slots)] for k, p in params.items()}
        self._steps = steps  # that each row has taken

    def step(self, params: Params, grads: Params, rows: Tensor) -> Params:
        """The weights of these rows after a step."""
        self._steps[rows] += 1
        return {k: self._move(k, p, grads[k], rows) for k, p in params.items()}

    def _move(self, name: str, p: Tensor, g: Tensor, rows: Tensor) -> Tensor:
        if self._kind == "adamw":
            p = p * (1 - self._rate * self._decay)
        elif self._decay:
            g = g + self._decay * p
        if self._kind == "sgd":
            if self._momentum:
                (velocity,) = self._state[name]
                g = velocity[rows] = self._momentum * velocity[rows] + g
            return p - self._rate * g
        mean, square = self._state[name]
        mean[rows] = m = 0.9 * mean[rows] + 0.1 * g
        square[rows] = v = 0.999 * square[rows] + 0.001 * g.square()
        count = self._steps[rows].reshape(-1, *[1] * (p.dim() - 1))
        return p - self._rate / (1 - 0.9**count) * m / (v.sqrt() / (1 - 0.999**count).sqrt() + 1e-8)


def _take_rows(trees: Any, rows: Tensor, of: int) -> Any:
    """These rows of every tensor; all of them as they are."""
    return trees if len(rows) == of else tree_map(lambda v: v[rows], trees)


def _take_row(params: Params, fixed: State, name: str, i: int) -> Tensor:
    return (params[name][i] if name in params else fixed[name]).clone().contiguous()


def _differs(name: str, clients: Sequence[Client]) -> bool:
    """Whether clients began with different weights of that name."""
    first, *others = (c.start[name] for c in clients)
    return any(other is not first and not torch.equal(other, first) for other in others)


def _clip(limit: float, grads: Params) -> Params:
    """Scale to a norm of at most `limit`, as torch.nn.utils.clip_grad_norm_ does."""
    norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * factor for k, g in grads.items()}
