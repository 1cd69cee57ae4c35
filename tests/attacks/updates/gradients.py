"""Updates of known images: digits through the tiny network of world.py, batches of one, two and four."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.updates import artifact
from tests.attacks.world import CLASSES, SHAPE, Architecture, Net, World, weights

RATE = 0.1
COMMON = np.float32(0.25)  # SCAFFOLD's c, everywhere


class Planted(World):
    """`groups` replayed updates for each (batch, steps); recorded ones where `recorded` is set."""

    def __init__(
        self,
        kinds: Sequence[tuple[int, int]] = ((1, 1),),
        groups: int = 6,
        recorded: int = 0,
        kind: Kind = Kind.LOCAL_MODEL,
        seed: int = 0,
        start: dict[str, NDArray[np.float32]] | None = None,
    ) -> None:
        super().__init__(sizes=(), clients=5)
        self.start = start or weights(seed)
        self.artifacts = [artifact(Kind.GLOBAL_MODEL, self.start, None)]
        if kind == Kind.CONTROL_DELTA:
            common = {n: np.full_like(v, COMMON) for n, v in self.start.items()}
            self.artifacts.append(artifact(Kind.CONTROL_GLOBAL, common, None))
        rng = np.random.default_rng(seed)
        for batch, steps in kinds:
            for i in range(groups):
                own = self.clients[i % 5]
                rows = rng.choice(len(own), batch, replace=False)
                self._plant(f"replay/b{batch}s{steps}/{i}", i % 5, own, rows, steps, kind)
        for k in range(recorded):
            own = self.clients[k]
            sent = self.descend(own, np.arange(len(own)), 3)
            self.artifacts.append(artifact(Kind.LOCAL_MODEL, sent, k))

    def _plant(self, name: str, k: int, own: Examples, rows: NDArray[np.int64], steps: int, kind: Kind) -> None:
        self.groups[name], self._labels[name] = own.x[rows], own.y[rows]
        after = self.descend(own, rows, steps)
        payload = after
        if kind == Kind.MODEL_DELTA:
            payload = {n: v - self.start[n] for n, v in after.items()}
        elif kind in (Kind.NORMALIZED_DELTA, Kind.CONTROL_DELTA):
            payload = {n: (self.start[n] - v) / (RATE * steps) for n, v in after.items()}
            if kind == Kind.CONTROL_DELTA:
                payload = {n: v - COMMON for n, v in payload.items()}
        elif kind == Kind.GRADIENT:
            payload = gradient(self.start, own.x[rows], own.y[rows])
        self.artifacts.append(
            Artifact(
                id=name,
                kind=kind,
                channel=Channel.UPLINK,
                round=0,
                sender=Party.client(k),
                seen_by=("server",),
                payload=payload,
                origin="replayed",
                note={"batch": len(rows), "steps": steps},
            )
        )

    def descend(self, own: Examples, rows: NDArray[np.int64], steps: int) -> dict[str, NDArray[np.float32]]:
        now = self.start
        for _ in range(steps):
            grads = gradient(now, own.x[rows], own.y[rows])
            now = {n: (v - RATE * grads[n]).astype(np.float32) for n, v in now.items()}
        return now

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        return Knowledge(
            classes=CLASSES,
            shape=SHAPE,
            architecture=Architecture(),
            training={"lr": RATE, "local_epochs": 3.0, "batch_size": 20.0},
        )

    _labels: dict[str, NDArray[np.int64]] = {}

    def members(self, artifact: str, label: int) -> NDArray[np.float32]:
        if artifact in self.groups:
            return np.asarray(self.groups[artifact][self._labels[artifact] == label])
        return np.asarray(super().members(artifact, label))


def gradient(
    start: dict[str, NDArray[np.float32]], x: NDArray[np.float32], y: NDArray[np.int64]
) -> dict[str, NDArray[np.float32]]:
    """Of the mean cross-entropy of images [B, C, H, W], as a client computes it."""
    with torch.random.fork_rng(devices=[]):
        net = Net()
    net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in start.items()})
    names, parameters = zip(*net.named_parameters(), strict=True)
    loss = cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
    found = torch.autograd.grad(loss, parameters)
    return {n: g.numpy() for n, g in zip(names, found, strict=True)}
