"""Second programs of split learning, batch by batch: every message, not the model alone.

A network of two or three parts as vectors; gradients of the parts by the chain rule, each from what crossed.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, leaky_relu, linear, max_pool2d

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.streams import Streams
from tests.fl import worlds
from tests.fl.equivalence.second import (
    CHANGING,
    DECAY,
    MOMENTUM,
    PARTS,
    RATE,
    ROUNDS,
    SHAPES,
    Pair,
    Vectors,
    heard,
    images_of,
    method_of,
    named,
    order,
)
from tests.fl.methods.by_hand import vector
from tests.fl.worlds import World

FIRST = sum(SHAPES[k].numel() for k in ("conv.weight", "conv.bias"))  # numbers in the first layer
LAST = sum(SHAPES[k].numel() for k in ("head.weight", "head.bias"))


def _body(w: Tensor, x: Tensor) -> Tensor:
    p = named(w)
    return max_pool2d(leaky_relu(conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)), 2).flatten(1)


def _middle(w: Tensor, z: Tensor) -> Tensor:
    p = named(w)
    return leaky_relu(linear(z, p["fc.weight"], p["fc.bias"]))


def _head(w: Tensor, h: Tensor) -> Tensor:
    p = named(w)
    return linear(h, p["head.weight"], p["head.bias"])


def _visit(w: Tensor, t: int, k: int, crossed: list[Tensor], u_shape: bool, fresh: bool = False) -> Tensor:
    """A client's visit from w; `fresh`: the server's momentum is forgotten after every batch."""
    x, y = images_of(k)
    buffer = torch.zeros_like(w)
    server = slice(FIRST, len(w) - LAST if u_shape else None)
    for rows in order(t, k, len(y)):
        v = w.clone().requires_grad_()
        z = _body(v, x[rows])
        z_sent = z.detach().requires_grad_()
        h = _middle(v, z_sent)
        if u_shape:
            h_sent = h.detach().requires_grad_()
            loss = cross_entropy(_head(v, h_sent), y[rows])
            by_head, back = torch.autograd.grad(loss, [v, h_sent])
            by_middle, gradient = torch.autograd.grad(h, [v, z_sent], back)
            crossed += [z.detach(), h.detach(), back, gradient]
        else:
            by_head = torch.zeros_like(w)
            by_middle, gradient = torch.autograd.grad(cross_entropy(_head(v, h), y[rows]), [v, z_sent])
            crossed += [z.detach(), gradient]
        [by_body] = torch.autograd.grad(z, [v], gradient)
        if fresh:
            buffer[server] = 0
        buffer = MOMENTUM * buffer + by_body + by_middle + by_head + DECAY * w
        w = w - RATE * buffer
    return w


def _crossed(messages: Sequence[Tensor]) -> Tensor:
    return torch.cat([m.flatten() for m in messages])


def _compare(name: str, second: Any, **settings: Any) -> Pair:
    with TemporaryDirectory() as folder:

        def ours(world: World) -> Vectors:
            batches = [a for a in world.artifacts if a.kind in (Kind.SMASHED, Kind.SMASHED_GRADIENT)]
            arrays = [a.payload.get("activations", a.payload.get("gradient")) for a in batches]
            crossed = [torch.from_numpy(np.array(a)).double() for a in arrays]
            return {"global": vector(world.model), "crossed": _crossed(crossed)}

        method = method_of(name, cut=1, **settings)
        ran = worlds.run(method, folder=Path(folder), **CHANGING)
        plain = worlds.run(method_of("fedavg", rounds=ROUNDS), **CHANGING)
        found, expected = ours(ran), second(vector(ran.initial))
        largest = expected["crossed"].abs().max()  # activations are of any size, and rounding with them
        scaled = [of | {"crossed": of["crossed"] / largest} for of in (found, expected)]
        return Pair(*scaled, vector(plain.model))  # type: ignore[call-arg]


def _turns(w: Tensor, u_shape: bool = False, fresh: bool = False) -> Vectors:
    """Vepakomma et al. 2018: clients in turn, one model handed on."""
    crossed = list[Tensor]()
    for t in range(ROUNDS):
        for k in heard(t):
            w = _visit(w, t, k, crossed, u_shape, fresh)
    return {"global": w, "crossed": _crossed(crossed)}


def split_learning() -> Pair:
    return _compare("split_learning", _turns)


def split_learning_anew() -> Pair:
    """As in the code of SplitFed's authors, whose server makes its optimiser anew for every batch."""
    return _compare("split_learning", lambda w: _turns(w, fresh=True), server_optimiser="batch")


def split_u_shape() -> Pair:
    return _compare("split_u_shape", lambda w: _turns(w, u_shape=True))


def splitfed_v2() -> Pair:
    """Thapa et al. 2022: clients in turn, drawn anew; the first layer begins alike and is averaged by sizes."""

    def second(w: Tensor) -> Vectors:
        crossed = list[Tensor]()
        for t in range(ROUNDS):
            clients = heard(t)
            if not clients:
                continue
            places = torch.randperm(len(clients), generator=Streams(5).torch("turns", t)).tolist()
            start, firsts, sizes = w[:FIRST], list[Tensor](), list[int]()
            for k in (clients[i] for i in places):
                w = _visit(torch.cat([start, w[FIRST:]]), t, k, crossed, False)
                firsts.append(w[:FIRST])
                sizes.append(len(PARTS[k]))
            mean = sum((n * a for n, a in zip(sizes, firsts, strict=True)), torch.zeros(())) / sum(sizes)
            w = torch.cat([mean, w[FIRST:]])
        return {"global": w, "crossed": _crossed(crossed)}

    return _compare("splitfed_v2", second)
