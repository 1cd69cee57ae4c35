"""What every contender of the bench trains, by name: `WORKLOADS`.

`small` and `one_step`: Fashion-MNIST (random images of the same shape where it is not installed), in clients with
equally many examples of 2 random classes each; half of the clients take part in a round. The network has 80,202
weights in two convolutions and two dense layers. The others are real networks (`peers/networks.py`) on invented
examples of ten kinds, and all clients take part. SGD 0.01, weight decay 5e-4, batches of 50.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.peers.networks import CLASSES, LENGTH, NETWORKS, PIXELS, VOCABULARY
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.partition import Index
from fedaudit.fl.model import Net, adapt, initialise, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams

LOCAL = {"batch_size": 50, "lr": 0.01, "momentum": 0.0, "weight_decay": 5e-4}
SEED = 7


class Size(NamedTuple):
    """What a workload trains, and by how many."""

    network: str
    clients: int
    cohort: int  # clients of a round
    each: int  # examples a client
    method: str = "fedavg"  # of ours, that does what the plain loop does


WORKLOADS: Mapping[str, Size] = {
    "small": Size("small", 50, 25, 1000),
    "one_step": Size("small", 1000, 500, 50),
    "resnet18": Size("resnet18", 4, 4, 100),
    "vit": Size("vit", 4, 4, 150),
    "lora": Size("lora", 4, 4, 400, "fedlora"),
}


@dataclass(frozen=True)
class Workload:
    data: Data
    parts: list[Index]
    name: str
    size: Size


def workload(size: Size) -> Workload:
    """The data: of the small network two classes a client; of real ones all, or a few rounds say nothing."""
    name = "invented examples"
    if size.network != "small":
        data = invent(size.network, size.clients * size.each * 2)
    else:
        try:
            found = load("fedaudit.fl.datasets", "fashion_mnist", Dataset)
            data, name = configure(found, {}, "dataset").load(), "Fashion-MNIST"
        except UserError:
            data = invent("small", 60_000)
    rng = np.random.default_rng(1)
    rows = [np.flatnonzero(data.train.y == c) for c in range(CLASSES)]
    parts = []
    for _ in range(size.clients):
        chosen = rng.choice(CLASSES, 2 if size.network == "small" else CLASSES, replace=False)
        parts.append(np.concatenate([rng.choice(rows[c], size.each // len(chosen), False) for c in chosen]))
    return Workload(data, parts, name, size)


def invent(network: str, examples: int) -> Data:
    """Noise round a pattern of each class, or tokens of which a class has some more often; as a network takes."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(examples) % CLASSES)
    if network == "lora":
        x = rng.integers(1, VOCABULARY, (examples, LENGTH))
        often = rng.random(x.shape) < 0.5
        x = np.where(often, 1 + y[:, None] + CLASSES * rng.integers(0, 9, x.shape), x)
    else:
        shape = (1, 28, 28) if network == "small" else (3, PIXELS, PIXELS)
        patterns = rng.random((CLASSES, *shape), dtype=np.float32)
        x = (patterns[y] + rng.random((examples, *shape), dtype=np.float32)) / 2
    arrays = Arrays(x=x, y=y)
    scale = {} if x.dtype.kind == "i" else {"mean": (0.5,) * x.shape[1], "std": (0.2,) * x.shape[1]}
    return Data(
        train=arrays, test=arrays.take(np.arange(min(100, examples))), classes=tuple("0123456789"), **scale
    )


def network(name: str = "small") -> Net:
    """The network of ours, or else the user's own module."""
    ours = {"small": ("cnn_w", (1, 28, 28)), "resnet18": ("resnet18", (3, PIXELS, PIXELS))}
    if name not in ours:
        return adapt(NETWORKS[name]())
    file, shape = ours[name]
    model = load("fedaudit.fl.models", file, Net)
    return model(shape, CLASSES, model.Config())


def count_flops(net: torch.nn.Module, x: torch.Tensor) -> float:
    """Of the products and convolutions of a step forwards and back, for one of the examples x [b, ...]."""
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    return float(counter.get_total_flops()) / len(x)


def write(path: Path, work: Workload, epochs: int, rounds: int, device: str = "cpu") -> None:
    """A workload file, which `peers/contract.py` reads: a round of everybody and so many of a cohort."""
    streams, clients, each = Streams(SEED), len(work.parts), len(work.parts[0])
    make = partial(network, work.size.network)
    rng, rows = np.random.default_rng(2), np.concatenate(work.parts)
    order = [torch.randperm(each, generator=streams.torch("batches", 0, k)).numpy() for k in range(clients)]
    cohorts = [np.sort(rng.choice(clients, work.size.cohort, replace=False)) for _ in range(rounds)]
    shape = (1, -1, 1, 1)
    np.savez(
        path,
        x=work.data.train.x[rows],
        y=work.data.train.y[rows],
        mean=np.array(work.data.mean, np.float32).reshape(shape),
        std=np.array(work.data.std, np.float32).reshape(shape),
        order=np.stack(order),  # ours in the first round, for everybody
        cohorts=np.reshape(cohorts, (rounds, -1)).astype(np.int64),
        epochs=epochs,
        device=np.array(device),
        network=np.array(work.size.network),
        **{name: LOCAL[name] for name in ("batch_size", "lr", "weight_decay")},  # type: ignore[arg-type]
        **{f"start/{k}": v.numpy() for k, v in state_of(initialise(make, streams)).items()},  # type: ignore[arg-type]
    )
