"""A tiny federation with a clock: sixteen clients of eight speeds that freeze now no layer and now three."""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge, Timing
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.world import World

CNN = 4 * 4_377_534  # bytes
LEFT = {0: CNN, 3: 4 * 1_113_150}  # what goes up with so many layers frozen
PROFILE = {0: 1.93564e-4, 3: 1.43990e-4}
TIMING = Timing(
    bandwidth=100.0,
    compute=0.4,
    tiers=np.linspace(0.5, 3, 8),
    cost=lambda said: 3 * PROFILE[int(said[Kind.FROZEN_COUNT]["count"])] if Kind.FROZEN_COUNT in said else 5.8e-4,
)


class Timed:
    """Truth and view; `jitter` is the sigma of a log-normal factor on each time."""

    def __init__(self, frozen: tuple[int, ...] = (0, 3), says: bool = False, jitter: float = 0.0) -> None:
        rng = np.random.default_rng(3)
        self.speeds = rng.permutation(np.repeat(np.linspace(0.5, 3, 8), 2))
        self.sizes = rng.permutation(np.arange(100, 900, 50))
        self.artifacts = [
            a
            for r, n in enumerate(frozen)
            for k in range(16)
            for a in self.exchange(r, k, n, says, float(rng.lognormal(0, jitter)))
        ]

    def exchange(self, round: int, client: int, frozen: int, says: bool, factor: float) -> list[Artifact]:
        """What the server sees of one client in one round."""
        size, megabytes = self.sizes[client], (CNN + LEFT[frozen]) / 2**20
        time = (megabytes / 100 + 3 * PROFILE[frozen] * size / 0.4) / self.speeds[client] * factor
        seen = {"time": np.array(time), "bytes_down": np.array(CNN), "bytes_up": np.array(LEFT[frozen])}
        found = [(Kind.TASK_TIME, seen, Channel.OBSERVED)]
        found.append((Kind.FROZEN_COUNT, {"count": np.array(frozen)}, Channel.UPLINK))
        if says:
            found.append((Kind.NUM_EXAMPLES, {"count": np.array(size)}, Channel.UPLINK))
        return [
            Artifact(
                id=f"r{round:05d}/client-{client}.{channel}/{kind}",
                kind=kind,
                channel=channel,
                round=round,
                sender=Party.client(client),
                seen_by=("server",),
                payload=payload,
            )
            for kind, payload, channel in found
        ]

    def capability(self, client: int) -> float:
        return float(self.speeds[client])

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.array([self.sizes[client], 0])

    @property
    def knowledge(self) -> Knowledge:
        return replace(_known(), timing=TIMING)


@cache
def _known() -> Knowledge:
    return World(sizes=(), clients=2).knowledge
