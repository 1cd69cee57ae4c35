"""Controls, views and checks look at four times the messages four times as often: none searches all for each."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.lab import find_received_message
from fedaudit.audit.observer.reading import watch_reading
from fedaudit.audit.observer.view import observer, select_visible
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position
from tests.attacks.world import SHAPE, World
from tests.contracts.growth import MOST, count, looked, sent

CLIENTS, ROUNDS = 6, 4
LARGE = 400  # artifacts that only the larger federation has
MANY = (Position.NEXT_CLIENT, Position.COLLUDING_CLIENTS)
CASE = SimulatedCase(
    validate(Config, {"federation": {"dataset": "digits", "clients": 2 * CLIENTS}, "method": "fedavg"}, "")
)
REPLAY = Replay(sizes=(1,), clients=2, groups=2, updates=((1, 1, 2),))
WORLD = World(sizes=(), clients=1)
MODEL = next(a.payload for a in WORLD.artifacts if a.kind == Kind.GLOBAL_MODEL)
TRAINED = {k: v + 1 for k, v in MODEL.items()}
PROTOTYPES = {"classes": [0, 1], "features": np.ones((2, 64), np.float32)}
COUNTS = {"classes": [0, 1], "counts": [5, 5]}
IMAGES = {"images": np.zeros((1, *SHAPE), np.float32)}


def federation(clients: int, rounds: int) -> list[Artifact]:
    """Every client sends and relays in every round; it also hears something that is for it alone."""
    found = []
    for t in range(rounds):
        found.append(sent(Kind.GLOBAL_MODEL, None, t, MODEL))
        for k in range(clients):
            own = sent(Kind.GROUP_MAP, None, t, {"client": [k], "group": [0]})
            found.append(dataclasses.replace(own, id=f"{own.id}/{k}", seen_by=(f"client/{k}",)))
            for kind, payload in (
                (Kind.LOCAL_MODEL, TRAINED),
                (Kind.LOCAL_PROTOTYPES, PROTOTYPES),
                (Kind.PROTO_COUNTS, COUNTS),
                (Kind.NUM_EXAMPLES, {"count": 10}),
                (Kind.CONDENSED_IMAGES, IMAGES),
                (Kind.CONDENSED_LABELS, {"labels": [0]}),
            ):
                found.append(sent(kind, k, t, payload))
            model = sent(Kind.RELAY_MODEL, k, t, TRAINED)
            later = (f"client/{(k + 1) % clients}",)
            found.append(dataclasses.replace(model, channel=Channel.RELAY, seen_by=later))
    return looked(found)


def check_growth(does: Callable[[list[Artifact]], object]) -> None:
    small, large = federation(CLIENTS, ROUNDS), federation(2 * CLIENTS, 2 * ROUNDS)
    few, many = count(lambda: does(small)), count(lambda: does(large))
    assert few and len(large) <= 4 * len(small)
    assert many <= MOST * few, f"{few:,} looks at {len(small):,} artifacts, {many:,} at {len(large):,}"


@dataclasses.dataclass
class Silent:
    """A bench whose clients say nothing."""

    method, protections, is_protected, artifacts, scratch, width = CASE.method, (), False, None, None, 2
    smallest_batch = 1
    owned = CASE.examples.parts
    holdings = SimpleNamespace(data=CASE.data, parts=[*owned.values()], streams=CASE.streams)

    def with_and_without(self) -> "list[tuple[str, Silent]]":
        return [(REPLAYED, self)]

    def drop_protections(self) -> "Silent":
        return self

    def classify(self, rows: Index) -> Index:
        return np.zeros(len(rows), np.int64)

    def replay_each(self, *_: object) -> list[tuple[str, None]]:
        return [(REPLAYED, None)]

    def replay_together(self, visits: Sequence[object]) -> list[list[tuple[str, None]]]:
        return [[(REPLAYED, None)] for _ in visits]

    def alone(self, *_: object, **__: object) -> "Silent":
        return self

    def train(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(message={})

    def replay(self, *_: object) -> None:
        return None

    def send(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("name", ["condensed", "memorised", "pairs", "prototypes", "updates"])
def test_a_control_looks_up_what_its_clients_received(name: str) -> None:
    control = importlib.import_module(f"fedaudit.audit.controls.{name}")
    check_growth(lambda recorded: control.plant(Silent(), recorded, REPLAY))


@pytest.mark.parametrize("position", Position)
def test_a_view_is_found_in_one_pass_over_what_was_recorded(position: Position) -> None:
    card = catalog.load("attacks", "loss_threshold").card
    card = dataclasses.replace(card, threat=dataclasses.replace(card.threat, position=position))
    card = dataclasses.replace(card, also_reads=(*card.also_reads, Kind.RELAY_MODEL, Kind.GROUP_MAP))

    def does(recorded: list[Artifact]) -> None:
        case = SimpleNamespace(clients=2 * CLIENTS if len(recorded) > LARGE else CLIENTS)
        who = observer(cast(Case, case), recorded, card)
        assert (len(who.parties) == case.clients) == (position in MANY)
        watch_reading(select_visible(recorded, who, card), {})

    check_growth(does)


def test_what_every_sender_received_is_looked_up() -> None:
    def does(recorded: list[Artifact]) -> None:
        view = index(recorded)
        assert all(
            set(find_received_message(view, a)) == {Kind.GLOBAL_MODEL, Kind.GROUP_MAP} for a in uploads(recorded)
        )

    check_growth(does)


def uploads(recorded: list[Artifact]) -> list[Artifact]:
    return [a for a in recorded if a.kind == Kind.LOCAL_MODEL]
