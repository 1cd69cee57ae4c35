"""Speed, as ratios measured in one run: ours against a plain PyTorch loop and the hardware's limit.

`make bench`, or `python -m benchmarks.speed.training --methods fedavg scaffold`. The workload is Fashion-MNIST
(random images of the same shape where it is not installed), 50 clients of 1000 examples of 2 random
classes, the two-convolution network of 80,202 weights, SGD 0.01, weight decay 5e-4, batch 50, 25 of
50 clients a round. The figure is client-samples per second: forward, backward and step, wall clock
of whole rounds without evaluation. Times alone mean nothing on a shared machine; the ratios do.

The plain loop is what most research code does: one process with all threads, deepcopy, state_dict
averaging, default memory layout. It runs in a process of its own, because whatever else a process
allocates changes how its allocator treats activations. The limit is what the same cores reach on
matrix products.
"""

import argparse
import copy
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.runtime import workers as worker_kinds
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.wire import Wire

CLIENTS, EACH, COHORT, BATCH = 50, 1000, 25, 50
LOCAL = {"batch_size": BATCH, "lr": 0.01, "momentum": 0.0, "weight_decay": 5e-4}
# forward 1,116,416 multiply-adds; backward twice that, less the first layer's input gradient
FLOP_PER_SAMPLE = 2 * (3 * 1_116_416 - 230_400)


class HalfOfThem(Availability):
    """25 of 50 clients, uniformly."""

    title = "half"

    def draw(self, round: int, candidates: object, streams: Streams, attempt: int = 0) -> Participation:
        rng = streams.numpy("participation", round, attempt)
        chosen = tuple(int(k) for k in np.sort(rng.choice(CLIENTS, COHORT, replace=False)))
        return Participation(chosen, chosen)

    def describe(self) -> str:
        return "25 of 50 clients a round"


@dataclass(frozen=True)
class Workload:
    data: Data
    parts: list[Index]
    name: str


def workload() -> Workload:
    """The data, in two classes a client."""
    try:
        found = load("fedaudit.fl.datasets", "fashion_mnist", Dataset)
        data, name = configure(found, {}, "dataset").load(), "Fashion-MNIST"
    except UserError:
        rng = np.random.default_rng(0)
        x = rng.random((60_000, 1, 28, 28), dtype=np.float32)
        y = rng.integers(0, 10, 60_000)
        arrays = Arrays(x=x, y=y)
        data = Data(train=arrays, test=arrays.take(np.arange(1000)), classes=tuple("0123456789"))
        name = "random images (Fashion-MNIST is not installed)"
    rng = np.random.default_rng(1)
    parts = []
    for _ in range(CLIENTS):
        pair = rng.choice(10, 2, replace=False)
        parts.append(
            np.concatenate([rng.choice(np.flatnonzero(data.train.y == c), EACH // 2, False) for c in pair])
        )
    return Workload(data, parts, name)


def network() -> Net:
    model = load("fedaudit.fl.models", "cnn_w", Net)
    return model((1, 28, 28), 10, model.Config())


def ours(work: Workload, method: RoundMethod, workers: int) -> Iterator[float]:
    """First the seconds that starting takes, then client-samples per second of each further round."""
    began, streams = time.perf_counter(), Streams(7)
    holdings = Holdings(work.data, work.parts, streams)
    start = state_of(initialise(network, streams))
    site = partial(build_site, method, holdings, network, "cpu")
    with worker_kinds.start(workers, site) as pool:
        federation = Federation(
            holdings=holdings,
            initial=start,
            availability=HalfOfThem(),
            wire=Wire(method.card, streams),
            workers=pool,
        )
        method.open(federation)
        state, t = method.start(federation), 0
        memory: dict[int, Tree] = {}
        yield time.perf_counter() - began
        while True:
            began = time.perf_counter()
            state = method.round(t, state, memory, federation)
            samples = federation.tally.delivered * EACH * method.config.local_epochs
            yield samples / (time.perf_counter() - began)
            t += 1


def plain(work: Workload, epochs: int) -> Iterator[float]:
    """FedAvg as a plain loop writes it; yields as `ours` does."""
    began, streams = time.perf_counter(), Streams(7)
    model, availability = initialise(network, streams), HalfOfThem()
    everything = normalise(torch.from_numpy(work.data.train.x), work.data)
    data = [(everything[p], torch.from_numpy(work.data.train.y[p])) for p in work.parts]
    t = 0
    yield time.perf_counter() - began
    while True:
        began = time.perf_counter()
        states, sizes = [], []
        for k in availability.draw(t, range(CLIENTS), streams).answering:
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.01, weight_decay=5e-4)
            x, y = data[k]
            local.train()
            for _ in range(epochs):
                for batch in torch.split(torch.randperm(len(y)), BATCH):
                    optimiser.zero_grad()
                    loss = nn.functional.cross_entropy(local(x[batch]), y[batch])
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
            states.append(local.state_dict())
            sizes.append(len(y))
        total = sum(sizes)
        model.load_state_dict(
            {k: sum(s[k] * (n / total) for s, n in zip(states, sizes, strict=True)) for k in states[0]}
        )
        yield sum(sizes) * epochs / (time.perf_counter() - began)
        t += 1


def apart(epochs: int) -> Iterator[float]:
    """The plain loop, one round each time it is called, in a fresh process."""
    ours_end, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve_plain, args=(theirs, epochs), daemon=True)
    process.start()
    while True:
        ours_end.send(True)
        yield float(ours_end.recv())


def _serve_plain(end: Connection, epochs: int) -> None:
    rounds = plain(workload(), epochs)
    with suppress(EOFError):  # the bench is over
        while True:
            end.recv()
            end.send(next(rounds))


def matrix_limit(seconds: float = 1.0) -> float:
    """Client-samples per second if all arithmetic ran like a large float32 matrix product, on every processor.

    The better of two libraries: `@` goes to MKL, which takes a slow path on some processors, and a convolution of
    1 x 1 with the same operands to oneDNN.
    """
    side, threads = 2048, torch.get_num_threads()
    a = torch.rand(side, side)
    image, kernel = a.t().reshape(1, side, side, 1), a.reshape(side, side, 1, 1)
    products: tuple[Callable[[], Tensor], ...] = (lambda: a @ a, lambda: torch.conv2d(image, kernel))
    torch.set_num_threads(cores())
    try:
        best, end = 0.0, time.perf_counter() + seconds
        with torch.inference_mode():
            while time.perf_counter() < end:
                for product in products:
                    began = time.perf_counter()
                    product()
                    best = max(best, 2 * side**3 / (time.perf_counter() - began))
    finally:
        torch.set_num_threads(threads)  # the process that holds the workers runs one
    return best / FLOP_PER_SAMPLE


def main() -> None:
    """Interleave rounds of every contender, so that a drifting machine slows all of them alike."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.training", description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["fedavg", "rebafl"])
    parser.add_argument("--rounds", type=int, default=3, help="rounds measured of each")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=worker_kinds.processes("auto", "cpu"))
    options = parser.parse_args()
    work = workload()
    runs: dict[str, Iterator[float]] = {}
    for name in options.methods:
        plugin = load("fedaudit.fl.methods", name, RoundMethod)
        method = configure(plugin, LOCAL | {"local_epochs": options.epochs}, "method")
        runs[name] = ours(work, method, options.workers)
    runs["plain loop"] = apart(options.epochs)
    starts = {name: next(run) for name, run in runs.items()}
    for run in runs.values():
        next(run)  # warm-up: fill the caches
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    limits = []
    for _ in range(options.rounds):
        limits.append(matrix_limit())
        for name, run in runs.items():
            speeds[name].append(next(run))
    middle = {name: float(np.median(s)) for name, s in speeds.items()}
    limit, base = float(np.median(limits)), middle["plain loop"]
    print(f"{work.name}; {options.workers} worker processes, {cores()} threads for the")
    print(f"plain loop; E = {options.epochs}; median of {options.rounds} interleaved rounds\n")
    print(f"{'':<14}{'samples/s':>11}{'x plain FedAvg':>16}{'of the limit':>14}{'start-up, s':>13}")
    for name, speed in middle.items():
        shares = f"{speed / base:>16.2f}{speed / limit:>14.0%}"
        print(f"{name:<14}{speed:>11,.0f}{shares}{starts[name]:>13.2f}")
    print(f"{'matrix limit':<14}{limit:>11,.0f}{limit / base:>16.2f}{1:>14.0%}")
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"\npeak memory of the largest process: {peak / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
