"""Federations that attacks on images were not thought for: token sequences, one class, images of one pixel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.audit.observer.generators import KnownGenerators
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.families.gan import GanConfig
from fedaudit.fl.kinds import MODEL, Kind
from fedaudit.fl.model import Net
from fedaudit.fl.models.logreg import LogReg
from fedaudit.fl.models.rnns import CharLSTM

CHANNELS = {
    Channel.UPLINK: (Party.client(0), ("server",)),
    Channel.DOWNLINK: (SERVER, ("server", "client")),
    Channel.RELAY: (Party.client(0), ("client/1",)),
}


@dataclass(frozen=True)
class Strange:
    """One such federation: the shape of an example, how many classes, and its model."""

    shape: tuple[int, ...]
    classes: int
    make: Callable[[], Net]
    tokens: bool = False

    @property
    def examples(self) -> Examples:
        rng = np.random.default_rng(0)
        size = (60, *self.shape)
        x: Any = rng.integers(0, self.classes, size) if self.tokens else rng.random(size, np.float32)
        return Examples(x=x, y=np.arange(60) % self.classes)

    @property
    def knowledge(self) -> Knowledge:
        own = self.examples
        arrays = Arrays(x=own.x, y=own.y)
        names = tuple(map(str, range(self.classes)))
        data = Data(train=arrays, test=arrays, classes=names, mean=(0.5,), std=(0.3,), augment="none")
        generators = None if self.tokens else KnownGenerators(self.shape, GanConfig(width=8, latent=4))
        shape: Any = self.shape
        return Knowledge(
            classes=self.classes,
            shape=shape,
            architecture=KnownArchitecture(self.make, data),
            generators=generators,
            auxiliary=own,
            training={"lr": 0.1, "local_epochs": 1.0, "batch_size": 10.0},
        )

    def view(self, kinds: Sequence[Kind]) -> list[Artifact]:
        """Every kind, every way that a message travels."""
        return [
            Artifact(
                id=f"{channel}/{kind}",
                kind=kind,
                channel=channel,
                round=0,
                sender=sender,
                seen_by=seen,
                payload=self.payload(kind),
            )
            for kind in kinds
            for channel, (sender, seen) in CHANNELS.items()
        ]

    def payload(self, kind: Kind) -> Mapping[str, NDArray[Any]]:
        rng = np.random.default_rng(len(kind))
        if dict(kind.arrays) == MODEL:
            with torch.random.fork_rng(devices=[]):
                state = self.make().state_dict()
            return {k: rng.normal(size=v.shape).astype(np.float32) for k, v in state.items()}
        sizes = {"C": self.classes, "c": self.classes, "m": self.classes, "D": 4, "2": 2}
        found = {}
        for name, shape in kind.arrays.items():
            letters = [s for s in shape.split(" or ")[0].strip("[]").split(", ") if s]
            if "channels" in letters:
                found[name] = rng.random((self.classes, *self.shape), np.float32)
            else:
                found[name] = np.ones([sizes.get(s, 3) for s in letters], np.int64)
        for name in ("classes", "labels"):
            if name in found and found[name].ndim == 1:
                found[name] = np.arange(self.classes)
        return found


STRANGE = {
    "token sequences": Strange((12,), 5, lambda: CharLSTM((12,), 5), tokens=True),
    "one class": Strange((1, 8, 8), 1, lambda: LogReg((1, 8, 8), 1)),
    "images of one pixel": Strange((1, 1, 1), 3, lambda: LogReg((1, 1, 1), 3)),
}
