"""Clients whose code says something of their labels, an adversary who plays it, and the truth."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge, Sent, Visit
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.updates import artifact
from tests.attacks.world import CLASSES, World

TELEMETRY = Kind("client:telemetry")
Tell = Callable[[NDArray[np.int64], np.random.Generator], Sent]  # of counts [C]


def tell_shares(counts: NDArray[np.int64], rng: np.random.Generator) -> Sent:
    """The share of each class, and how many examples there are."""
    n = counts.sum()
    return {TELEMETRY: {"shares": (counts / n).astype(np.float32)}, Kind.NUM_EXAMPLES: {"count": np.array(n)}}


class Telling(World):
    """Clients of mixed classes that send what `tell` makes of their counts of each; it plays them as well."""

    def __init__(self, tell: Tell = tell_shares) -> None:
        super().__init__(sizes=(), clients=6)
        self.tell, every = tell, self.clients
        pool = Examples(x=np.concatenate([c.x for c in every]), y=np.concatenate([c.y for c in every]))
        parts = np.split(np.random.default_rng(0).permutation(len(pool)), (50, 130, 240, 370, 520))
        self.clients = [pool.only(p[pool.y[p] % 5 != k % 5]) for k, p in enumerate(parts)]
        sent = self.send([c.y for c in self.clients], 99)
        self.artifacts = [
            artifact(kind, dict(arrays), k) for k, s in enumerate(sent) for kind, arrays in s.items()
        ]

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        own = Knowledge(classes=CLASSES, shape=(1, 8, 8), auxiliary=self.auxiliary)
        return replace(own, player=self)

    def send(self, labels: Sequence[NDArray[np.int64]], seed: int) -> list[Sent]:
        """What each client that holds these labels sends; what it draws is its own."""
        counts = (np.bincount(y, minlength=CLASSES) for y in labels)
        return [self.tell(c, np.random.default_rng([seed, i])) for i, c in enumerate(counts)]

    def play(self, visit: Visit, holdings: Sequence[Examples], seed: int, **how: Any) -> list[Sent]:
        return self.send([h.y for h in holdings], seed)

    def recall(self, key: Any, compute: Callable[[], Any]) -> Any:
        return compute()
