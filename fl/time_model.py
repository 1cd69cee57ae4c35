"""The simulated time model: how long a client takes to download, train and upload (FreezeFL).

From FreezeFL's public code. With capability kappa_k, n frozen layers, n_k
examples and E epochs, client k's exchange takes

    t_k = (MB_down + MB_up) / (bw kappa_k) + prof[n] n_k E / (comp kappa_k)

in the simulator's units: a round takes as long as its slowest participant, rounds add up. Capability
is one of eight tiers from 0.5 to 3.0, as many clients in each; communication and computation are
slow together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import UserError

MEGABYTE = 2**20  # the published 16.7 MB of 4,377,534 weights are units of 2**20 bytes
TIERS = (0.5, 3.0, 8)  # slowest, fastest, how many


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a model costs; `profile[n]` is seconds a training example with the first n layers frozen."""

    bandwidth: float  # bw, megabytes per unit of time at capability 1
    compute: float  # comp
    profile: tuple[float, ...]

    def __post_init__(self) -> None:
        if min(self.bandwidth, self.compute, *self.profile) <= 0 or not self.profile:
            raise UserError(
                f"time model: bandwidth, compute and profile must be > 0, got {self}",
                hint="FreezeFL's are fl.time_model.FEMNIST_CNN and fl.time_model.SHAKESPEARE_RNN",
            )


# Public code. Its other folders use bw 50 and comp 1.5 for the CNN; only this pair fits its tables.
FEMNIST_CNN = Workload(bandwidth=100, compute=0.4, profile=(1.936e-4, 1.814e-4, 1.700e-4, 1.440e-4, 1.440e-4))
SHAKESPEARE_RNN = Workload(bandwidth=25, compute=3, profile=(1.392e-4, 1.271e-4, 1.039e-4, 0.766e-4))


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """Times of one federation; `capability` [K] is kappa."""

    capability: NDArray[np.float64]
    workload: Workload

    def task_time(
        self, client: int, *, bytes_down: int, bytes_up: int, examples: int, epochs: int, frozen: int = 0
    ) -> float:
        """t_k. `frozen` layers beyond the profile cost what its last entry says."""
        profile = self.workload.profile
        seconds = profile[min(frozen, len(profile) - 1)] * examples * epochs
        exchange = (bytes_down + bytes_up) / MEGABYTE / self.workload.bandwidth
        return float((exchange + seconds / self.workload.compute) / self.capability[client])


def capabilities(clients: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """[clients] kappa: the tiers in equal numbers (to within one client), shuffled."""
    tiers = np.linspace(*TIERS)
    return rng.permutation(tiers[np.arange(clients) % len(tiers)])


def round_length(times: Mapping[int, float]) -> float:
    """The server waits for the slowest; a round without participants takes no time."""
    return max(times.values(), default=0.0)


def analytic_profile(forward: Sequence[float], seconds: float) -> tuple[float, ...]:
    """A profile for any model from the forward cost of each layer, input side first, in any unit.

    Training costs one forward pass of all layers and two of the unfrozen ones (backward to inputs and
    to weights). `seconds` is the time an example takes with nothing frozen.
    """
    total = sum(forward)
    if total <= 0 or min(forward) < 0:
        raise UserError(
            f"time model: layer costs must be >= 0 and not all 0, got {list(forward)}",
            hint="count multiplications, or measure each layer",
        )
    return tuple(seconds * (total + 2 * sum(forward[n:])) / (3 * total) for n in range(len(forward)))
