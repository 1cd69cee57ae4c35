"""Clinics that send what some steps on their rows of a table make of a network for tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from fedaudit.attacks.attack import Examples
from fedaudit.fl.artifact import SERVER, Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.models.mlp import TabMLP
from tests.attacks.summaries.clinics import INVENTED, Clinics, send

CLASSES, RATE = 3, 0.05
LABELS = {"patients": lambda: INVENTED.train.y, "wine": lambda: load_wine().target.astype(np.int64)}


class Runner(torch.nn.Module):
    """A network of rows in raw units; its `net` is given inputs."""

    def __init__(self, net: TabMLP, world: "TrainedRows") -> None:
        super().__init__()
        self.net, self._world = net, world

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self._world.scale(x))

    def module(self) -> "Runner":
        return self

    def logits(self, rows: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            return self(torch.from_numpy(rows)).numpy()


class TrainedRows(Clinics):
    """`steps` of gradient descent of each clinic on all its rows; nobody describes the columns of wine."""

    def __init__(
        self,
        sizes: Sequence[int] = (1, 1, 2),
        steps: int = 1,
        seed: int = 0,
        hidden: Sequence[int] = (64, 32),
        name: str = "patients",
    ) -> None:
        super().__init__(name, sizes, seed)
        self.y = LABELS[name]()
        rest = np.setdiff1d(np.arange(len(self.x)), np.concatenate(self.parts))
        self.auxiliary, self.reference = self._take(rest[::2]), self._take(rest[1::2])
        self._scale = torch.from_numpy(np.stack([self.auxiliary.x.mean(axis=0), self.auxiliary.x.std(axis=0)]))
        self._build = {"shape": (self.scale(torch.from_numpy(self.x[:1])).shape[1],), "classes": CLASSES}
        self._build["config"] = TabMLP.Config(hidden=tuple(hidden))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.start = {k: v.numpy() for k, v in TabMLP(**self._build).state_dict().items()}
        self.knowledge = replace(
            self.knowledge,
            classes=CLASSES,
            auxiliary=self.auxiliary,
            architecture=self.run_model,
            training={"lr": RATE, "local_epochs": float(steps), "batch_size": 1000.0},
        )
        model = replace(send(0, 0, self.start), id="r00000/server.downlink/global_model", kind=Kind.GLOBAL_MODEL)
        self.artifacts = [replace(model, channel=Channel.DOWNLINK, sender=SERVER, seen_by=("server", "client"))]
        for client, rows in enumerate(self.parts):
            self.artifacts += self._upload(client, rows, steps)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        if self.columns is not None:
            return torch.from_numpy(self.columns.model_input(x.cpu().numpy())).to(x.device)
        mean, std = self._scale.to(x)
        return ((x - mean) / std).float()

    def run_model(self, weights: Mapping[str, NDArray[Any]]) -> Runner:
        with torch.random.fork_rng(devices=[]):
            net = TabMLP(**self._build)
        net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
        return Runner(net.requires_grad_(False), self)

    def _take(self, rows: NDArray[np.int64]) -> Examples:
        return replace(super()._take(rows), labels=None)

    def _upload(self, client: int, rows: NDArray[np.int64], steps: int) -> list[Artifact]:
        net = self.run_model(self.start).net.requires_grad_(True)
        optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
        x, y = self.scale(torch.from_numpy(self.x[rows])), torch.from_numpy(self.y[rows])
        for _ in range(steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
        after = {k: v.numpy() for k, v in net.state_dict().items()}
        sent = {Kind.LOCAL_MODEL: after, Kind.NUM_EXAMPLES: {"count": np.array(len(rows))}}
        return [
            replace(send(client, 0, payload), kind=kind, id=f"r00000/client-{client}.uplink/{kind}")
            for kind, payload in sent.items()
        ]
