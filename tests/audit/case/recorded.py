"""A minimal recorded case: what crossed the wire in a run, and as much besides as a test lets it know."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from fedaudit.audit.case.case import About
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.data.partition import Index
from fedaudit.fl.method import Card, LocalConfig, Method
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection

NONE = np.zeros(0, np.int64)


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
    make_net: Callable[[], Net] | None = None
    first: State | None = None
    parts: Mapping[int, Index] = field(default_factory=dict)
    auxiliary: Index = field(default_factory=lambda: NONE)
    unseen: Mapping[int, Index] = field(default_factory=dict)
    reference: Index = field(default_factory=lambda: NONE)
    planted: Index = field(default_factory=lambda: NONE)
    spare: Index = field(default_factory=lambda: NONE)
    auxiliary_kind: Literal["same", "shifted"] = "same"
    heard: Mapping[int, frozenset[int]] | None = None
    simulated: bool = False
    availability: None = None
    time_model: TimeModel | None = None

    def initial(self) -> State | None:
        return self.first

    def sampling(self, client: int | None) -> Drawn:
        return Drawn()
