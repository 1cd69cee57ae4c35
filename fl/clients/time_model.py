"""The simulated clock: how long a client takes to download, train and upload (FreezeFL), and what makes it so.

With capability kappa_k, client k's exchange takes

    t_k = jitter * [(MB_down + MB_up) / (bw kappa_k) + n_k c / (comp kappa_k)]

in the simulator's units, c being what training costs an example: epochs * prof[0], or what a method's own
`cost` says (frozen layers, narrower networks). A round takes as long as its slowest participant, rounds add up.
Capability is one of eight tiers from 0.5 to 3.0, as many clients in each; communication and computation are slow
together. A class of devices is a file of fl/devices/, which gives the profile prof of a network.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams

if TYPE_CHECKING:  # whoever reads times loads no torch
    from torch import nn

MEGABYTE = 2**20  # the published 16.7 MB of 4,377,534 weights are units of 2**20 bytes


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a model costs; `profile[n]` is seconds a training example with the first n layers frozen."""

    bandwidth: float  # bw, megabytes per unit of time at capability 1
    compute: float  # comp
    profile: tuple[float, ...]
    widths: tuple[tuple[float, float], ...] = ()  # (width, seconds), ascending; none: narrower nets gain nothing

    def __post_init__(self) -> None:
        if min(self.bandwidth, self.compute, *self.profile) <= 0 or not self.profile:
            raise UserError(
                f"time model: bandwidth, compute and profile must be > 0, got {self}",
                hint="FreezeFL's are those of femnist_cnn and shakespeare_rnn",
            )

    def frozen(self, layers: int) -> float:
        """Seconds an example with that many layers frozen; beyond the profile what its nearest entry says."""
        return self.profile[min(max(layers, 0), len(self.profile) - 1)]

    def at_width(self, width: float) -> float:
        """Seconds an example of the network of which each layer is cut to this share."""
        if not self.widths:
            return self.profile[0]
        known, seconds = zip(*self.widths, strict=True)
        return float(np.interp(width, known, seconds))


@dataclass(frozen=True, kw_only=True)
class TimeModel:
    """Times of one federation; `capability` [K] is kappa. `jitter` [sigma] is what the load adds by chance."""

    capability: NDArray[np.float64]
    workload: Workload
    jitter: float = 0.0
    streams: Streams | None = None  # of the jitter

    def task_time(self, client: int, *, bytes_down: int, bytes_up: int, examples: int, cost: float) -> float:
        """t_k without jitter; `cost` is c, in seconds of training an example."""
        exchange = (bytes_down + bytes_up) / MEGABYTE / self.workload.bandwidth
        found = (exchange + cost * examples / self.workload.compute) / float(self.capability[client] or np.nan)
        return _check(found, client)

    def shares(self, heard: Collection[int]) -> dict[str, Any]:
        """Who was heard in a round, and how many of them are of the slower half of the devices."""
        slow = self.capability < np.median(self.capability)
        return {
            "heard": sorted(heard),
            "heard_slow": int(sum(bool(slow[k]) for k in heard)),
            "clients": len(slow),
            "clients_slow": int(slow.sum()),
        }

    def add_delay(self, seconds: float, round: int, client: int) -> float:
        """The time really taken: times a log-normal factor of this round and client."""
        if not self.jitter or self.streams is None:
            return seconds
        return _check(seconds * self.streams.numpy("time", round, client).lognormal(0.0, self.jitter), client)


def _check(time: float, client: int) -> float:
    """No round ends where a client takes for ever, and no mean of times is one."""
    if not np.isfinite(time):
        raise UserError(
            f"time model: client {client} would take for ever ({time})",
            hint="give every device some speed (tiers, bandwidth, compute), and less jitter",
            key="federation.time_model",
        )
    return float(time)


# What one client knows of its own clock: (bytes down, bytes up, cost an example) -> tau, without jitter
Clock = Callable[[int, int, float], float]


def clock(model: TimeModel, client: int, examples: int) -> Clock:
    """A client's own clock: it knows how fast it is and how many examples it has."""

    def tau(down: int, up: int, cost: float) -> float:
        return model.task_time(client, bytes_down=down, bytes_up=up, examples=examples, cost=cost)

    return tau


class Devices(Plugin):
    """A class of devices. Subclasses write workload()."""

    title: str
    source: str = ""

    @settings
    class Config:
        bandwidth: Positive = Field(default=100, description="bw: megabytes in a unit of time at capability 1")
        compute: Positive = Field(
            default=0.4, description="comp: seconds of the profile in a unit of time at capability 1"
        )
        tiers: tuple[float, float, int] = Field(
            default=(0.5, 3.0, 8),
            description="capability of the slowest clients, of the fastest, and how many classes of them",
        )
        jitter: Amount = Field(
            default=0.0, description="sigma of the log-normal factor on each time, for the load of a device"
        )

        def __post_init__(self) -> None:
            slow, fast, count = self.tiers
            if not (0 < slow <= fast and count >= 1):
                raise UserError(
                    f"tiers must be [slowest > 0, fastest >= slowest, number >= 1], got {list(self.tiers)}",
                    hint="FreezeFL's are [0.5, 3, 8]",
                )

    @abstractmethod
    def workload(self, net: "nn.Module", shape: tuple[int, ...]) -> Workload:
        """What training `net` on an example of this shape costs."""

    def time_model(self, net: "nn.Module", shape: tuple[int, ...], clients: int, streams: Streams) -> TimeModel:
        """The clock of a federation of that many clients."""
        return TimeModel(
            capability=capabilities(clients, streams.numpy("capability"), self.config.tiers),
            workload=self.workload(net, shape),
            jitter=self.config.jitter,
            streams=streams,
        )


def capabilities(
    clients: int, rng: np.random.Generator, tiers: tuple[float, float, int] = (0.5, 3.0, 8)
) -> NDArray[np.float64]:
    """[clients] kappa: the tiers in equal numbers (to within one client), shuffled."""
    values = np.linspace(*tiers)
    return rng.permutation(values[np.arange(clients) % len(values)])


def round_length(times: Mapping[int, float]) -> float:
    """The server waits for the slowest; a round without participants takes no time."""
    return max(times.values(), default=0.0)


def training_cost(forward: Sequence[float]) -> tuple[float, ...]:
    """Multiply-adds of training on an example with the first n layers frozen, n = 0..L-1.

    From those of each layer's forward pass, input side first. All layers run forward; those that train have a
    gradient of their weights; and all of these but the first have one of their input:

        cost(n) = sum_all f_l + sum_{l > n} f_l + sum_{l > n + 1} f_l
    """
    if not forward or sum(forward) <= 0 or min(forward) < 0:
        raise UserError(
            f"time model: layer costs must be >= 0 and not all 0, got {list(forward)}",
            hint="count multiplications, or measure each layer",
        )
    return tuple(sum(forward) + sum(forward[n:]) + sum(forward[n + 1 :]) for n in range(len(forward)))
