"""A federation small enough to write methods out as on paper: vectors, full batches, double precision.

Four clients with data and one without; not everybody answers; some answers are lost after training.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedaudit.fl.data.scale import normalise
from fedaudit.fl.runtime.streams import Streams
from tests.fl.worlds import TinyNet, data, parts

K, LOSS = 5, 0.3
ANSWERING = [(0, 1, 2, 4), (0, 4), (1, 2)]
SIZES = (7, 20, 11, 0, 30)
ALL = slice(None)
FULL: dict[str, Any] = {"rounds": 5, "local_epochs": 3, "batch_size": 1000, "lr": 0.1}
WORLD: dict[str, Any] = {"script": [(range(K), a) for a in ANSWERING], "reply_loss": LOSS}

Extra = Callable[[TinyNet, Tensor], Tensor | float]  # (model, examples) -> what is added to the loss


def vector(state: Mapping[str, Tensor]) -> Tensor:
    """A state of TinyNet as one vector."""
    return torch.cat([v.flatten().double() for v in state.values()])


def net_at(w: Tensor) -> TinyNet:
    net = TinyNet().double()
    vector_to_parameters(w, net.parameters())
    return net


def gradient(w: Tensor, k: int, extra: Extra = lambda net, x: 0.0, batch: Tensor | slice = ALL) -> Tensor:
    """Of client k's mean loss over a batch of its examples."""
    d = data()
    index = parts(d)[k][batch]
    x = normalise(torch.from_numpy(d.train.x[index]), d).double()
    net = net_at(w)
    loss = cross_entropy(net(x), torch.from_numpy(d.train.y[index])) + extra(net, x)
    return parameters_to_vector(torch.autograd.grad(loss, list(net.parameters()))).detach()


def descend(
    w: Tensor,
    k: int,
    rate: float,
    momentum: float = 0.0,
    more: Callable[[Tensor], Tensor | float] = lambda v: 0.0,
    extra: Extra = lambda net, x: 0.0,
    batches: Sequence[Tensor | slice] = (ALL,) * 3,
    then: Tensor | float = 0.0,
) -> Tensor:
    """Steps down client k's loss (plus `extra`), with `more(v)` added to the gradient at v.

    `then` is added to each step outside of the momentum.
    """
    buffer = torch.zeros_like(w)
    for batch in batches:
        buffer = momentum * buffer + gradient(w, k, extra, batch) + more(w)
        w = w - rate * (buffer + then)
    return w


def rounds() -> Iterator[tuple[int, list[int]]]:
    """Each round with the clients whose answers arrive."""
    for t in range(FULL["rounds"]):
        drawn = [Streams(5).numpy("reply_loss", t, k).random() for k in range(K)]
        yield t, [k for k in ANSWERING[t % 3] if drawn[k] >= LOSS]


def batches(t: int, k: int, size: int, epochs: int) -> list[Tensor]:
    """The batches client k draws in round t."""
    order = Streams(5).torch("batches", t, k)
    return [b for _ in range(epochs) for b in torch.randperm(SIZES[k], generator=order).split(size)]


def agree(world: Any, expected: Tensor) -> None:
    torch.testing.assert_close(vector(world.model), expected, rtol=0, atol=2e-6)
