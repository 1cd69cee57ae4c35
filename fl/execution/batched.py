"""Many clients as one batch: stacked weights, one vmapped step for all of them. The CUDA executor.

A step of a small network keeps a GPU busy for microseconds, while launching it costs a millisecond
of the host; stacking K clients launches once for all K. On a CPU the opposite holds (activations of
many clients fall out of cache), so there the pool is used; the code is the same and tests run it on
the CPU against the serial loop.

Clients are stacked when they hold equally many examples, because their batches then have equal
shapes; statistics of normalisation are stacked like weights. Others, methods with a train() of their own, and
DP-SGD are trained one by one.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_map

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.execution.site import Site
from fedaudit.fl.method import ClientSide
from fedaudit.fl.model import State
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.training.local import Handle, Params, Trained, crop_flip, stepper


class Batched(Workers):
    """One site in this process that trains up to `width` clients at a time."""

    count = 1

    def __init__(self, make_site: Callable[[], Site], width: int = 32) -> None:
        super().__init__()
        self._site, self._width = make_site(), width

    def everywhere(self, name: str, *args: Any) -> None:
        getattr(self._site, name)(*args)

    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        stacks = type(self._site.method).train is ClientSide.train and not self._site.private
        if name != "train" or not stacks:
            yield from map(getattr(self._site, name), items)
            return
        # neighbours of equal size are stacked; order is kept
        sized = ((len(self._site.holdings.parts[job[0]]), job) for job in items)
        bad = self._site.compromise.clients
        for (_, alone), group in groupby(sized, key=lambda pair: (pair[0], pair[1][0] in bad)):
            jobs = [job for _, job in group]
            if alone:  # a compromised client trains in its own way
                yield from map(self._site.train, jobs)
                continue
            for start in range(0, len(jobs), self._width):
                yield from train_together(self._site, jobs[start : start + self._width])


def train_together(site: Site, jobs: list[Any]) -> list[Reply]:
    """Clients of equal size, side by side; the same draws and steps as one by one."""
    method, clients = site.method, [site.client(job) for job in jobs]
    consts = [method.compute_constants(c) for c in clients]
    rates = {method.config.lr_decay**c.round for c in clients}  # asynchronous rounds may differ
    if len(clients) == 1 or len(rates) > 1:
        return [method.finish(c, c.train(method, const)) for c, const in zip(clients, consts, strict=True)]
    const = tree_map(lambda *leaves: torch.stack([v.to(site.device) for v in leaves]), consts[0], *consts[1:])
    trained = _train(site, clients, const)
    return [method.finish(c, t) for c, t in zip(clients, trained, strict=True)]


def _train(site: Site, clients: list[Client], const: Any) -> list[Trained]:
    method, config, net = site.method, site.method.config, site.net
    net.train()
    start = {k: v.to(site.device) for k, v in clients[0].start.items()}
    trainable = [k for k, _ in net.named_parameters() if method.is_trained(k)]
    moving = [k for k, _ in net.named_buffers() if k in start]  # statistics of normalisation
    fixed = {k: v for k, v in start.items() if k not in (*trainable, *moving)}
    params, buffers = (
        {k: torch.stack([c.start[k].to(site.device) for c in clients]) for k in names}
        for names in (trainable, moving)
    )
    anchor = {k: v.clone() for k, v in params.items()}
    rate = config.lr * config.lr_decay ** clients[0].round
    optimiser = stepper(config, list(params.values()), rate)  # elementwise: one for all clients of a stack
    losses: list[Tensor] = []

    def loss(p: Params, b: Params, x: Tensor, y: Tensor, c: Any) -> tuple[Tensor, Params]:
        own = {k: v.clone() for k, v in b.items()}  # which the network changes in place
        return method.loss(Handle(net, {**fixed, **own, **p}), x, y, c), own

    step = vmap(grad_and_value(loss, has_aux=True), randomness="different")
    correct = vmap(method.correct)
    orders = [c.generator("batches") for c in clients]
    x, y = torch.stack([c.x for c in clients]), torch.stack([c.y for c in clients])
    rows, steps = torch.arange(len(clients), device=x.device)[:, None], 0
    for _ in range(method.count_epochs(x.shape[1])):
        losses = []
        permutation = torch.stack([torch.randperm(x.shape[1], generator=g) for g in orders])
        for batch in torch.split(permutation.to(x.device), config.batch_size, dim=1):
            xb = x[rows, batch]
            if clients[0].augment == "crop_flip":
                xb = torch.stack([crop_flip(b, g) for b, g in zip(xb, orders, strict=True)])
            grads, (values, buffers) = step(params, buffers, xb, y[rows, batch], const)
            if config.grad_clip > 0:
                grads = vmap(partial(_clip, config.grad_clip))(grads)
            grads = correct(grads, params, anchor, const)
            for k, p in params.items():
                p.grad = grads[k].detach()
            optimiser.step()
            for k, moved in method.after_step(params, const, rate).items():
                params[k].copy_(moved)
            steps += 1
            losses.append(values.detach())
    means = torch.stack(losses).mean(0).tolist() if losses else [0.0] * len(clients)
    return [
        Trained({k: _take_row({**params, **buffers}, fixed, k, i) for k in net.state_dict()}, steps, mean)
        for i, mean in enumerate(means)
    ]


def _take_row(params: Params, fixed: State, name: str, i: int) -> Tensor:
    return (params[name][i] if name in params else fixed[name]).detach().cpu().clone().contiguous()


def _clip(limit: float, grads: Params) -> Params:
    """Scale to a norm of at most `limit`, as torch.nn.utils.clip_grad_norm_ does."""
    norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * factor for k, g in grads.items()}
