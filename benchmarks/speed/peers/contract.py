"""What every contender of the bench is: a process that trains the next round of a workload file when it is asked.

`python -m benchmarks.speed.peers.NAME FILE` runs with the peer's interpreter alone: of what stands here it needs
torch and numpy. It prints a line of JSON when it is ready and one after each round; a line on its standard input
asks for the next round, and the end of it ends the contender.

Everybody has the same network, start, clients and cohorts, and the same batches in the first round, in which all
clients take part: all then have the same loss. Later batches are those of the first round; ours draws others.
"""

import copy
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.speed.peers.networks import NETWORKS

EVALUATED = 2000  # examples that a loss is of


@dataclass(frozen=True)
class Workload:
    """A workload file. `x` and `y` hold the clients' examples one after the other, in order of their batches."""

    x: Tensor
    y: Tensor
    each: int  # examples a client
    device: str  # where everybody trains, and where x and y lie
    cohorts: list[list[int]]  # of each round; everybody takes part in the first
    settings: Mapping[str, float]  # epochs, batch_size, lr, weight_decay
    start: Mapping[str, Tensor]
    name: str  # of the network

    @property
    def clients(self) -> int:
        return len(self.y) // self.each

    @property
    def epochs(self) -> int:
        return int(self.settings["epochs"])

    @property
    def batch_size(self) -> int:
        return int(self.settings["batch_size"])

    def examples(self, client: int) -> tuple[Tensor, Tensor]:
        rows = slice(client * self.each, (client + 1) * self.each)
        return self.x[rows], self.y[rows]

    def batches(self, client: int) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over a client's examples."""
        x, y = self.examples(client)
        return zip(torch.split(x, self.batch_size), torch.split(y, self.batch_size), strict=True)

    def network(self) -> nn.Module:
        """The network with the weights that everybody starts from."""
        model = NETWORKS[self.name]().to(self.device)
        model.load_state_dict(self.start)
        return model

    def optimiser(self, parameters: Any, lr: float | None = None) -> torch.optim.SGD:
        """The clients' optimiser."""
        rate = self.settings["lr"] if lr is None else lr
        return torch.optim.SGD(parameters, lr=rate, weight_decay=self.settings["weight_decay"])

    def train(self, model: nn.Module, client: int) -> None:
        """Local training as a user of torch writes it, where a peer leaves it to its user."""
        optimiser = self.optimiser(model.parameters())
        model.train()
        for _ in range(self.epochs):
            for x, y in self.batches(client):
                optimiser.zero_grad()
                cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    def loss(self, model: nn.Module) -> float:
        """The mean loss of examples of all clients."""
        rows = slice(None, None, max(1, len(self.y) // EVALUATED))
        model = copy.deepcopy(model).to(self.device).eval()  # a peer's server may lie elsewhere
        with torch.no_grad():
            return float(cross_entropy(model(self.x[rows]), self.y[rows]))


def read(path: str) -> Workload:
    """What a workload file holds, with images as the network takes them."""
    with np.load(path) as file:
        device, name = str(file["device"]), str(file["network"])
        held = {name: torch.from_numpy(file[name]) for name in {*file.files} - {"device", "network"}}
    order = held["order"]  # [clients, each]: rows in the order of their batches
    rows = (order + order.shape[1] * torch.arange(len(order))[:, None]).flatten()
    prefix, x = "start/", held["x"]
    if x.is_floating_point():
        x = (x - held["mean"]) / held["std"]
    return Workload(
        x=x[rows].to(device),
        y=held["y"][rows].to(device),
        each=order.shape[1],
        device=device,
        cohorts=[list(range(len(order))), *held["cohorts"].tolist()],
        settings={name: float(held[name]) for name in ("epochs", "batch_size", "lr", "weight_decay")},
        start={name.removeprefix(prefix): held[name] for name in held if name.startswith(prefix)},
        name=name,
    )


def wait_for(device: str) -> None:
    """Until a device has done what it was given; a processor has."""
    if device == "cuda":
        torch.cuda.synchronize()


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


class Turns:
    """A contender's end of the bench. What it prints otherwise goes where its errors go."""

    def __init__(self, work: Workload) -> None:
        self._work, self._began = work, 0.0
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def ready(self, version: str, runs: str) -> None:
        """Say that rounds can begin, which version will run them, and where."""
        self._answer(version=version, runs=runs, torch=torch.__version__)

    def begin(self) -> bool:
        """Wait until a round is asked for; False: there is none any more."""
        asked = bool(sys.stdin.readline())
        self._began = time.perf_counter()
        return asked

    def end(self, model: nn.Module) -> None:
        """The round is over, and this is the server's model."""
        wait_for(self._work.device)
        seconds = time.perf_counter() - self._began
        self._answer(seconds=seconds, loss=self._work.loss(model))

    def _answer(self, **values: str | float) -> None:
        print(json.dumps(values), file=self._answers, flush=True)
