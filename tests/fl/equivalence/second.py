"""Second programs: what they share. Methods without public code, written again from the papers' equations.

A second program works on vectors in double precision and uses nothing of fl but the random streams: who answers,
the order of the batches and the images that were drawn are given to it, as the golden trajectories give them.
What it computes and ours must agree to the rounding of float32.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, leaky_relu, linear, max_pool2d

from fedaudit.audit.settings import catalog
from fedaudit.fl.method import Method
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from tests.fl import worlds
from tests.fl.methods.by_hand import ANSWERING, LOSS, K, vector
from tests.fl.worlds import World

TOLERANCE = 1e-6  # ours computes in float32
RATE, MOMENTUM, DECAY, BATCH, EPOCHS, ROUNDS = 0.1, 0.5, 0.01, 8, 2, 5
SETTINGS: dict[str, Any] = {
    "rounds": ROUNDS,
    "local_epochs": EPOCHS,
    "batch_size": BATCH,
    "lr": RATE,
    "momentum": MOMENTUM,
    "weight_decay": DECAY,
}
CHANGING: dict[str, Any] = {"script": [(range(K), a) for a in ANSWERING], "reply_loss": LOSS}
STEADY: dict[str, Any] = {"script": worlds.EVERYONE}
DATA = worlds.data()
PARTS = worlds.parts(DATA)
CLIENTS = [k for k in range(K) if len(PARTS[k])]
SHAPES = {k: v.shape for k, v in worlds.TinyNet().state_dict().items()}
LENGTH = sum(s.numel() for s in SHAPES.values())

Vectors = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # (weights, images, labels) -> the mean loss of a batch
Changed = Mapping[str, Callable[..., Any]]


class Pair(NamedTuple):
    """What ours and the second program end with, and plain FedAvg's model in the same world."""

    ours: Vectors
    second: Vectors
    fedavg: Tensor

    def difference(self) -> float:
        """Largest absolute difference; infinite where something is missing or not a number."""
        if self.ours.keys() != self.second.keys():
            return float("inf")
        gaps = [(self.ours[k].double() - v.double()).abs().max() for k, v in self.second.items()]
        return max(float("inf") if torch.isnan(g) else float(g) for g in gaps)

    def effect(self) -> float:
        """How far the models that it compares are from FedAvg's: what a fault could show."""
        models = [v for v in self.second.values() if v.shape == self.fedavg.shape]
        return min(float((v - self.fedavg).abs().max()) for v in models)


def method_of(name: str, changed: Changed | None = None, **settings: Any) -> Any:
    """A method by its name, some of its functions replaced so that they keep what they saw."""
    made = configure(catalog.load("methods", name), SETTINGS | settings, "method")
    return type(type(made).__name__, (type(made),), dict(changed or {}))(made.config)


def pair(method: Method, world: Mapping[str, Any], second: Callable[[Tensor], Vectors], ours: Any) -> Pair:
    """Run ours, then the second program from the same start; `ours` reads a world into vectors."""
    ran = worlds.run(method, **world)  # type: ignore[arg-type]
    plain = worlds.run(method_of("fedavg", rounds=ROUNDS), **world)
    return Pair(ours(ran), second(vector(ran.initial)), vector(plain.model))


def served(world: World) -> Vectors:
    return {"global": vector(world.model)}


# A network, its training and who takes part ------------------------------------------------------


def images_of(k: int) -> tuple[Tensor, Tensor]:
    """A client's examples, normalised, in double precision."""
    x = (torch.from_numpy(DATA.train.x[PARTS[k]]).double() - 0.4) / 0.25
    return x, torch.from_numpy(DATA.train.y[PARTS[k]])


def named(w: Tensor) -> dict[str, Tensor]:
    parts = w.split([s.numel() for s in SHAPES.values()])
    return {k: v.reshape(s) for v, (k, s) in zip(parts, SHAPES.items(), strict=True)}


def features(w: Tensor, x: Tensor) -> Tensor:
    p = named(w)
    z = max_pool2d(leaky_relu(conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)), 2)
    return leaky_relu(linear(z.flatten(1), p["fc.weight"], p["fc.bias"]))


def logits(w: Tensor, x: Tensor) -> Tensor:
    p = named(w)
    return linear(features(w, x), p["head.weight"], p["head.bias"])


def plain(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(logits(w, x), y)


def order(t: int, k: int, n: int, size: int = BATCH, stream: str = "batches") -> Iterator[Tensor]:
    """The batches that a client with n examples is given in round t, epoch by epoch."""
    rng = Streams(5).torch(stream, t, k)
    for _ in range(EPOCHS):
        yield from torch.randperm(n, generator=rng).split(size)


def descend(
    w: Tensor,
    x: Tensor,
    y: Tensor,
    batches: Iterable[Tensor],
    loss: Loss = plain,
    rate: float = RATE,
    decay: float = DECAY,
) -> Tensor:
    """SGD with momentum from an empty buffer, weight decay in the gradient."""
    buffer = torch.zeros_like(w)
    for rows in batches:
        v = w.clone().requires_grad_()
        [g] = torch.autograd.grad(loss(v, x[rows], y[rows]), [v])
        buffer = MOMENTUM * buffer + g + decay * w
        w = w - rate * buffer
    return w


def is_lost(t: int, k: int) -> bool:
    return bool(Streams(5).numpy("reply_loss", t, k).random() < LOSS)


def heard(t: int) -> list[int]:
    """Whose answers arrive in round t of the changing world."""
    return [k for k in ANSWERING[t % len(ANSWERING)] if not is_lost(t, k)]


def mean_of(models: Mapping[int, Tensor], weights: Mapping[int, float] | None = None) -> Tensor:
    """Weighted by numbers of examples, if nothing else is said."""
    by = weights or {k: float(len(PARTS[k])) for k in models}
    return sum((by[k] * v for k, v in models.items()), torch.zeros(())) / sum(by[k] for k in models)


def counts_of(labels: Tensor | np.ndarray) -> np.ndarray:
    return np.bincount(np.asarray(labels), minlength=4)
