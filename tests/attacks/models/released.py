"""Models that few people taught, and one that everybody did: each starts from the same random network."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.gradients import Planted
from tests.attacks.updates.updates import artifact
from tests.attacks.world import CLASSES


class Released(Planted):
    """`models` replayed ones of one person a class, and a global one of `each` people of every class."""

    def __init__(self, models: int = 3, each: int = 40) -> None:
        super().__init__(kinds=())
        self.clients = [
            c.only(np.concatenate([np.flatnonzero(c.y == k)[:each] for k in range(CLASSES)]))
            for c in self.clients
        ]
        everybody = Examples(
            x=np.concatenate([c.x for c in self.clients]), y=np.concatenate([c.y for c in self.clients])
        )
        for i in range(models):
            rows = np.array([np.flatnonzero(everybody.y == c)[i] for c in range(CLASSES)])
            self._plant(f"replay/released/{i}", i % 5, everybody, rows, 3, Kind.LOCAL_MODEL)
        after = self.descend(everybody, np.arange(len(everybody)), 3)
        self.artifacts.append(
            replace(artifact(Kind.GLOBAL_MODEL, after, None), id="r00001/server.downlink/global_model", round=1)
        )

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        return replace(super().knowledge, auxiliary=self.auxiliary)

    def members(self, artifact: str, label: int) -> NDArray[np.float32]:
        if artifact in self.groups:
            return super().members(artifact, label)
        return np.concatenate([c.of_class(label) for c in self.clients])

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        if artifact in self.groups:
            return super().people(artifact, label)
        return {k: 1000 * k + np.flatnonzero(c.y == label) for k, c in enumerate(self.clients)}
