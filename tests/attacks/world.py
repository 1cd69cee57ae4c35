"""A tiny federation for attack tests: the embedded digits, clients of two classes, real features.

The clients' models are random convolutional extractors that differ a little between clients;
untrained extractors leak as much as trained ones.
"""

from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedaudit.attacks.attack import Examples, Knowledge, Unseen
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind

Arrays = Mapping[str, NDArray[Any]]
CLASSES, FEATURES, SHAPE = 10, 64, (1, 8, 8)


@cache
def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 1,797 digits that scikit-learn ships, in its order: images [N, 1, 8, 8] in [0, 1], and their labels."""
    found = load_digits()
    return (found.images[:, None] / 16).astype(np.float32), found.target.astype(np.int64)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.wide = nn.Linear(16 * 64, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.wide(self.conv(x).relu().flatten(1)).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Extractor:
    def __init__(self, net: Net) -> None:
        self.net = net.eval().requires_grad_(False)

    def features(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.net.features(torch.from_numpy(np.ascontiguousarray(images))).numpy()

    def logits(self, images: NDArray[Any]) -> NDArray[Any]:
        return self.net(torch.from_numpy(np.ascontiguousarray(images))).numpy()

    def module(self) -> Net:
        return self.net


class Architecture:
    def __call__(self, weights: Arrays) -> Extractor:
        with torch.random.fork_rng(devices=[]):
            net = Net()
        net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
        return Extractor(net)


def weights(seed: int) -> dict[str, NDArray[Any]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {k: v.numpy() for k, v in Net().state_dict().items()}


class World:
    """Clients own disjoint digits; `sizes` replayed prototypes are made with each client's model."""

    def __init__(
        self, sizes: tuple[int, ...] = (1, 20), clients: int = 6, groups: int = 40, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        x, y = digits()
        order = rng.permutation(len(x))
        aux, ref, own = np.split(order, [600, 1100])
        self.auxiliary, self.reference = Examples(x=x[aux], y=y[aux]), Examples(x=x[ref], y=y[ref])
        # client k owns classes 2k, 2k+1 (mod 10); two clients may share a class, halved between them
        self.clients: list[Examples] = []
        owners = {c: [k for k in range(clients) if c in _classes(k)] for c in range(CLASSES)}
        for k in range(clients):
            rows = [own[y[own] == c][owners[c].index(k) :: len(owners[c])] for c in _classes(k)]
            chosen = np.concatenate(rows)
            self.clients.append(Examples(x=x[chosen], y=y[chosen]))
        start = weights(seed)
        self.artifacts = [_artifact(Kind.GLOBAL_MODEL, start, None)]
        self.groups: dict[str, NDArray[Any]] = {}
        models = []
        for k in range(clients):
            noise = weights(seed + 1 + k)
            local = {n: (v + 0.6 * noise[n]).astype(np.float32) for n, v in start.items()}
            models.append(Architecture()(local))
            self._send(k, local, models[k])
        for n in sizes:
            for i in range(groups):
                self._replay(n, i, i % clients, models[i % clients], rng)

    def _send(self, k: int, local: Arrays, model: Extractor) -> None:
        mine = self.clients[k]
        classes = np.array(_classes(k))
        protos = np.stack([model.features(mine.of_class(c)).mean(0) for c in classes])
        counts = np.array([(mine.y == c).sum() for c in classes])
        self.artifacts += [
            _artifact(Kind.LOCAL_MODEL, local, k),
            _artifact(Kind.LOCAL_PROTOTYPES, {"classes": classes, "features": protos}, k),
            _artifact(Kind.PROTO_COUNTS, {"classes": classes, "counts": counts}, k),
        ]

    def _replay(self, n: int, i: int, k: int, model: Extractor, rng: np.random.Generator) -> None:
        label = _classes(k)[i // len(self.clients) % 2]
        pool = self.clients[k].of_class(label)
        group = pool[rng.choice(len(pool), n, replace=False)]
        payload = {"classes": np.array([label]), "features": model.features(group).mean(0, keepdims=True)}
        name = f"replay/n{n}/{i}"
        self.groups[name] = group
        self.artifacts.append(
            Artifact(
                id=name,
                kind=Kind.LOCAL_PROTOTYPES,
                channel=Channel.UPLINK,
                round=3,
                sender=Party.client(k),
                seen_by=("server",),
                payload=payload,
                origin="replayed",
                note={"n": n},
            )
        )

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(classes=CLASSES, shape=SHAPE, architecture=Architecture(), auxiliary=self.auxiliary)

    # the Truth protocol

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        if artifact in self.groups:
            return self.groups[artifact]
        return self.clients[_owner(artifact)].of_class(label)

    def find_members(self, artifact: str, label: int) -> Examples:
        found = self.members(artifact, label)
        return Examples(x=found, y=np.full(len(found), label))

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        if artifact in self.groups:
            return {-1: np.arange(len(self.groups[artifact]))}
        client = _owner(artifact)
        return {client: 1000 * client + np.flatnonzero(self.clients[client].y == label)}

    def read_upload(self, artifact: str) -> Arrays:
        (found,) = [a for a in self.artifacts if a.id == artifact]
        return found.payload

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset()

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self.clients[client].y, minlength=CLASSES)

    def client_examples(self, client: int) -> Examples:
        return self.clients[client]

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 1000 * client + np.arange(len(self.clients[client]))


def _classes(client: int) -> list[int]:
    return [2 * client % CLASSES, (2 * client + 1) % CLASSES]


def _owner(artifact: str) -> int:
    return int(artifact.split("client-")[1].split(".")[0])


def _artifact(kind: Kind, payload: Arrays, client: int | None) -> Artifact:
    up = client is not None
    return Artifact(
        id=f"r00003/client-{client}.uplink/{kind}" if up else f"r00003/server.downlink/{kind}",
        kind=kind,
        channel=Channel.UPLINK if up else Channel.DOWNLINK,
        round=3,
        sender=Party.client(client) if client is not None else SERVER,
        seen_by=("server",) if up else ("server", "client"),
        payload=payload,
    )
