"""What every contender of the bench trains.

Fashion-MNIST (random images of the same shape where it is not installed), in clients with equally many examples
of 2 random classes each. The network has 80,202 weights in two convolutions and two dense layers; SGD 0.01,
weight decay 5e-4, batches of 50; half of the clients take part in a round.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.partition import Index
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams

CLIENTS, EACH, CLASSES = 50, 1000, 10
LOCAL = {"batch_size": 50, "lr": 0.01, "momentum": 0.0, "weight_decay": 5e-4}
# forward 1,116,416 multiply-adds; backward twice that, less the first layer's input gradient
FLOP_PER_SAMPLE = 2 * (3 * 1_116_416 - 230_400)
SEED = 7


@dataclass(frozen=True)
class Workload:
    data: Data
    parts: list[Index]
    name: str


def workload(clients: int = CLIENTS, each: int = EACH) -> Workload:
    """The data, in two classes a client."""
    try:
        found = load("fedaudit.fl.datasets", "fashion_mnist", Dataset)
        data, name = configure(found, {}, "dataset").load(), "Fashion-MNIST"
    except UserError:
        rng = np.random.default_rng(0)
        x = rng.random((60_000, 1, 28, 28), dtype=np.float32)
        y = rng.integers(0, CLASSES, 60_000)
        arrays = Arrays(x=x, y=y)
        data = Data(train=arrays, test=arrays.take(np.arange(1000)), classes=tuple("0123456789"))
        name = "random images (Fashion-MNIST is not installed)"
    rng = np.random.default_rng(1)
    rows = [np.flatnonzero(data.train.y == c) for c in range(CLASSES)]
    parts = []
    for _ in range(clients):
        pair = rng.choice(CLASSES, 2, replace=False)
        parts.append(np.concatenate([rng.choice(rows[c], each // 2, False) for c in pair]))
    return Workload(data, parts, name)


def network() -> Net:
    model = load("fedaudit.fl.models", "cnn_w", Net)
    return model((1, 28, 28), CLASSES, model.Config())


def cohort(clients: int) -> int:
    """How many clients take part in a round."""
    return max(1, clients // 2)


def write(path: Path, work: Workload, epochs: int, rounds: int, device: str = "cpu") -> None:
    """A workload file, which `peers/contract.py` reads: a round of everybody and so many of half."""
    streams, clients, each = Streams(SEED), len(work.parts), len(work.parts[0])
    rng, rows = np.random.default_rng(2), np.concatenate(work.parts)
    order = [torch.randperm(each, generator=streams.torch("batches", 0, k)).numpy() for k in range(clients)]
    cohorts = [np.sort(rng.choice(clients, cohort(clients), replace=False)) for _ in range(rounds)]
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
        **{name: LOCAL[name] for name in ("batch_size", "lr", "weight_decay")},  # type: ignore[arg-type]
        **{f"start/{k}": v.numpy() for k, v in state_of(initialise(network, streams)).items()},  # type: ignore[arg-type]
    )
