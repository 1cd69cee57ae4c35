"""What a plan states of a control is what it plants: its visits are counted, and nobody trains."""

import dataclasses
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.audit.controls.effort import PRIVATE, READ, VISITS, PlayedClients
from fedaudit.audit.controls.lab import Visit
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from tests.audit.controls.test_growth_of_looks import CASE, MODEL, PROTOTYPES, TRAINED, Silent
from tests.contracts.growth import looked, sent

NETWORK = 13_000_000  # numbers; what is planted on them does not fit memory
REPLAY = Replay(sizes=(1, 5, 20, 10_000), clients=3, groups=30)


@dataclasses.dataclass
class Counting(Silent):
    """A bench that counts visits, and examples of all steps, by how long they take in plain steps."""

    examples: list[float] = dataclasses.field(default_factory=list)  # of each visit
    is_protected: bool = False
    private: bool = False
    owned: dict[int, Index] = dataclasses.field(default_factory=dict)
    each: float = 0.0

    @property
    def site(self) -> "Counting":
        return self

    def begin(self, *_: object) -> "Counting":
        return self

    def with_and_without(self) -> list[tuple[str, Silent]]:
        return [(REPLAYED, self), *([(UNPROTECTED, self)] if self.is_protected else [])]

    def alone(self, client: int, chosen: Index, streams: object, *, epochs: int, batch: int, **_: Any) -> Silent:
        each = len(chosen) * epochs or max(1, len(chosen) / READ)
        return dataclasses.replace(self, each=each)

    def train(self, *of: object) -> Any:
        self.examples.append(self.each)
        return super().train(*of)

    work = train

    def replay(self, *_: object) -> None:
        self.examples.append(self.each * (PRIVATE if self.private else 1))

    def replay_each(self, *_: object) -> list[tuple[str, None]]:
        self.replay()
        if self.private:
            self.train()
        return [(origin, None) for origin, _ in self.with_and_without()]

    def replay_together(self, visits: Sequence[object]) -> list[list[tuple[str, None]]]:
        return [cast(Counting, v.lab).replay_each() for v in visits if isinstance(v, Visit)]


class Mashing(FedAvg):
    """Its clients send means of their examples."""

    def mash(self) -> None:
        pass


def recorded(clients: int, rounds: int, numbers: int) -> list[Artifact]:
    update = {"w": np.zeros(numbers, np.float32)} if numbers else TRAINED
    found = []
    for t in range(rounds):
        found.append(sent(Kind.GLOBAL_MODEL, None, t, MODEL))
        for k in range(clients):
            of = [
                (Kind.LOCAL_MODEL, update),
                (Kind.LOCAL_PROTOTYPES, PROTOTYPES),
                (Kind.MASHED_BATCH, {"x": [0]}),
            ]
            found += [sent(kind, k, t, payload) for kind, payload in of]
    return looked(found)


ALL = ["averages", "memorised", "pairs", "prototypes", "series", "updates"]


@pytest.mark.parametrize("protected", ["", "messages", "training"])
@pytest.mark.parametrize(
    ("name", "each", "numbers"),
    [
        *((name, each, 0) for name in ALL for each in (4, 60, 200)),
        ("series", 60, NETWORK),
        ("updates", 60, NETWORK),
    ],
)
def test_what_is_stated_is_within_a_factor_of_two_of_what_is_planted(
    name: str, each: int, numbers: int, protected: str
) -> None:
    parts = dict(enumerate(np.array_split(np.arange(4 * each), 4)))
    control = importlib.import_module(f"fedaudit.audit.controls.{name}")
    method = FedAvg(dataclasses.replace(CASE.method.config, rounds=3, local_epochs=6, batch_size=20))
    if name == "averages":
        method = Mashing(method.config)
    bench = Counting(is_protected=bool(protected), private=protected == "training", owned=parts)
    bench.method = method
    bench.holdings = SimpleNamespace(data=CASE.data, parts=[*parts.values()], streams=CASE.streams)
    control.plant(bench, recorded(4, 3, numbers), REPLAY)
    labels = CASE.data.train.y
    clients = PlayedClients(
        classes=[np.unique(labels[rows], return_counts=True)[1].tolist() for rows in parts.values()],
        upload_bytes=4 * (numbers or sum(np.size(v) for v in TRAINED.values())),
        is_protected=bool(protected),
        trains_privately=protected == "training",
    )
    steps = control.count_steps(clients, REPLAY, method.config)
    stated = sum(size * number for size, number in steps.items())
    for many, made in ((steps[VISITS], len(bench.examples)), (stated, sum(bench.examples))):
        assert made / 2 <= many <= 2 * made, (many, made)
