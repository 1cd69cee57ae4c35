"""A tiny federation that memorised its images: embedded digits, a narrow MLP, three clients."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge, Sent, Unseen, Visit
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.observer.shadows import ShadowTrainer
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.local import train
from tests.attacks.world import digits

SHAPE, CLASSES = (1, 8, 8), 10
CONFIG = LocalConfig(local_epochs=40, batch_size=20, lr=0.2, momentum=0.5)
LIGHT = LocalConfig(local_epochs=2, batch_size=20, lr=0.1)


class Mlp(Net):
    def __init__(self) -> None:
        super().__init__(SHAPE, CLASSES)
        self.wide = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, CLASSES)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x.flatten(1)).relu()


class Overfit:
    """Clients with `size` noisy digits each; the global model, and uploads one step or many from it.

    `heart`: whether clients train at all; `shift`: what they add to labels before. Pixel noise
    makes digits hard to tell without memory.
    """

    def __init__(
        self, size: int = 60, clients: int = 3, heart: bool = True, shift: int = 0, config: LocalConfig = CONFIG
    ) -> None:
        rng = np.random.default_rng(0)
        x, y = digits()
        x = np.clip(x + rng.normal(0, 0.5, x.shape), 0, 1).astype(np.float32)
        order = rng.permutation(len(x))
        self.data = Data(
            train=Arrays(x=x, y=y),
            test=Arrays(x=x[:1], y=y[:1]),
            classes=tuple(map(str, range(CLASSES))),
            mean=(0.5,),
            std=(0.3,),
            augment="none",
        )
        own, rest = order[: size * clients], order[size * clients :]
        self.parts = np.split(own, clients)
        self.auxiliary, self.reference = self._images(rest[:500]), self._images(rest[500:])
        self.shift, self.config = shift, config
        start = state_of(initialise(Mlp, Streams(0)))
        models = [self._train(start, p, k) if heart else start for k, p in enumerate(self.parts)]
        common = self._train(start, own, 99) if heart else start
        self.artifacts = [_artifact(Kind.GLOBAL_MODEL, start, None, 0)]
        self.artifacts += [_artifact(Kind.LOCAL_MODEL, m, k, 0) for k, m in enumerate(models)]
        self.artifacts.append(_artifact(Kind.GLOBAL_MODEL, common, None, 1))

    def _images(self, index: NDArray[np.int64]) -> Examples:
        return Examples(x=self.data.train.x[index], y=self.data.train.y[index])

    def _train(self, start: Any, index: NDArray[np.int64], number: int) -> Any:
        return self.train(start, self._images(index), number, self.config)

    def train(self, start: Any, own: Examples, number: int, config: LocalConfig) -> Any:
        with torch.random.fork_rng(devices=[]):
            net = Mlp()
        x, y = (torch.from_numpy(own.x) - 0.5) / 0.3, torch.from_numpy((own.y + self.shift) % CLASSES)
        return train(FedAvg(config), net, start, x, y, {}, Streams(number).torch("order")).state

    @property
    def trainer(self) -> ShadowTrainer:
        return ShadowTrainer(make=Mlp, data=self.data, config=CONFIG)

    @property
    def knowledge(self) -> Knowledge:
        return Knowledge(
            classes=CLASSES,
            shape=SHAPE,
            architecture=KnownArchitecture(Mlp, self.data),
            auxiliary=self.auxiliary,
            trainer=self.trainer,
            training={"local_epochs": 40.0, "lr": 0.2},
        )

    # the Truth protocol

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        if "client-" in artifact:
            return self.client_examples(int(artifact.split("client-")[1].split(".")[0])).of_class(label)
        return self._images(np.concatenate(self.parts)).of_class(label)

    def find_members(self, artifact: str, label: int) -> Examples:
        found = self.members(artifact, label)
        return Examples(x=found, y=np.full(len(found), label))

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        clients = (
            [int(artifact.split("client-")[1].split(".")[0])] if "client-" in artifact else range(len(self.parts))
        )
        return {k: self.parts[k][self.data.train.y[self.parts[k]] == label] for k in clients}

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset()

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self.client_examples(client).y, minlength=CLASSES)

    def client_examples(self, client: int) -> Examples:
        return self._images(self.parts[client])

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return self.parts[client]


class Played:
    """Clients of that world as an adversary plays them: their training, on images of its own."""

    def __init__(self, world: Overfit) -> None:
        self._world = world

    def play(
        self,
        visit: Visit,
        holdings: Sequence[Examples],
        seed: int,
        *,
        steps: int | None = None,
        draws: int | None = None,
        noised: bool = True,
        protected: bool = True,
    ) -> list[Sent]:
        start = {k: torch.from_numpy(np.array(v)) for k, v in visit.weights.items()}
        config = self._world.config
        if steps is not None:
            config = replace(config, local_epochs=steps, batch_size=1000, momentum=0.0)
        trained = (self._world.train(start, own, seed + i, config) for i, own in enumerate(holdings))
        return [{Kind.LOCAL_MODEL: {k: v.numpy() for k, v in state.items()}} for state in trained]


@cache
def overfit() -> Overfit:
    return Overfit()


@cache
def light() -> Overfit:
    """Clients that train as long as clients do."""
    return Overfit(config=LIGHT)


@cache
def untrained() -> Overfit:
    return Overfit(heart=False)


@cache
def mislabelled() -> Overfit:
    return Overfit(shift=3)


def _artifact(kind: Kind, state: Mapping[str, Any], client: int | None, round: int) -> Artifact:
    up = client is not None
    payload = {k: v.numpy() for k, v in state.items()}
    return Artifact(
        id=f"r{round:05}/" + (f"client-{client}.uplink/{kind}" if up else f"server.downlink/{kind}"),
        kind=kind,
        channel=Channel.UPLINK if up else Channel.DOWNLINK,
        round=round,
        sender=Party.client(client) if client is not None else SERVER,
        seen_by=("server",) if up else ("server", "client"),
        payload=payload,
    )


def view(world: Overfit, *kinds: Kind) -> Sequence[Artifact]:
    return [a for a in world.artifacts if not kinds or a.kind in kinds]
