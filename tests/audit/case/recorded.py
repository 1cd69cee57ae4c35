"""A minimal recorded case: what crossed the wire in a run, and as much besides as a test lets it know."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fedaudit.audit.case.case import About, Participation, Split
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.families.layers import NetworkSize
from fedaudit.fl.method import Card, LocalConfig, Method
from fedaudit.fl.model import Net, State, count
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Fields with a default are those that may be absent."""

    card: Card
    clients: int
    data: Data
    streams: Streams
    about: About = field(default_factory=lambda: About(dataset="digits of theirs", clients=(), model="theirs"))
    protections: list[Protection] = field(default_factory=list)
    artifacts: Path | None = None
    training: LocalConfig | None = None
    method: Method | None = None
    private: PrivateTraining | None = None
    adapters: AdapterSettings | None = None
    compromise: Compromise = field(default_factory=Compromise)
    make_net: Callable[[], Net] | None = None
    first: State | None = None
    examples: Split = field(default_factory=Split)
    simulated: bool = False
    time_model: TimeModel | None = None
    device: str = "cpu"

    @property
    def network(self) -> "KnownNetwork":
        return KnownNetwork(self.make_net, self.first, self.adapters)

    @property
    def participation(self) -> Participation:
        return Participation(None)


@dataclass(frozen=True)
class KnownNetwork:
    """What was told of the network."""

    make: Callable[[], Net] | None
    first: State | None
    adapters: AdapterSettings | None

    def initial(self) -> State | None:
        return self.first

    @property
    def size(self) -> NetworkSize:
        numbers = count(self.first or {})
        return NetworkSize(parameters=numbers, layers=len(self.first or {}), products=numbers, convolved=0)
