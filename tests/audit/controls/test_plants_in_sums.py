"""Where the server reads sums, a plant is read in the sum of its round, with what the others sent."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.verdict.people import bound_people
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.participation import Participation
from fedaudit.fl.kinds import Kind
from tests.audit.simulated import simulated
from tests.audit.tiny import Everyone

pytestmark = pytest.mark.usefixtures("few_epochs")

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 3,
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.4, "reference": 0.4},
    },
    "method": {"name": "rebafl", "rounds": 1, "local_epochs": 1, "batch_size": 1000},
    "protections": ["secure_aggregation"],
    "workers": 0,
    "record": "all",
    "replay": {"sizes": [1], "clients": 1, "groups": 2, "updates": [[1, 1, 1]]},
}


@cache
def ran(availability: str = "full") -> tuple[RunDir, Config]:
    changed = {"federation": SETTINGS["federation"] | {"availability": availability}}
    return simulated(SETTINGS | changed)


class OneByOne(Everyone):
    def draw(self, round: int, candidates: Any, streams: object, attempt: int = 0) -> Participation:
        return Participation((1,), (1,))


@cache
def recorded() -> tuple[Artifact, ...]:
    return tuple(messages(ran()[0].artifacts, set(Kind), "all"))


@cache
def made(control: str) -> Replays:
    run, config = ran()
    return plant(control, Lab.from_case(open_case(run, config)), recorded(), config.replay)


def sent(client: int, kind: Kind) -> Artifact:
    return next(a for a in recorded() if a.kind is kind and a.sender.index == client)


@pytest.mark.parametrize("control", ["updates", "memorised", "prototypes"])
def test_people_are_planted_at_every_client_in_a_sum_and_by_themselves(control: str) -> None:
    found = {(a.sender.index, a.origin) for a in made(control).artifacts}
    assert found == {(k, origin) for k in range(3) for origin in (REPLAYED, UNPROTECTED)}
    assert all(a.seen_by == ("server",) for a in made(control).artifacts)


def test_a_planted_model_is_read_as_the_mean_of_the_round_by_examples() -> None:
    """By hand: the planted client holds one example, and the others what they said."""
    by_id = {a.id: a for a in made("updates").artifacts}
    pairs = [(a, by_id[f"{id}/unprotected"]) for id, a in by_id.items() if f"{id}/unprotected" in by_id]
    assert len(pairs) >= 6
    for read, alone in pairs:
        others = [k for k in range(3) if k != read.sender.index]
        n = {k: float(sent(k, Kind.NUM_EXAMPLES).payload["count"]) for k in others}
        for name, value in alone.payload.items():
            total = value + sum(n[k] * sent(k, Kind.LOCAL_MODEL).payload[name].astype(float) for k in others)
            np.testing.assert_allclose(read.payload[name], total / (1 + sum(n.values())), atol=1e-5)


def test_an_attack_that_finds_single_uploads_is_blind_in_a_sum() -> None:
    run, config = ran()
    attack = catalog.load("attacks", "analytic")()
    bench = Bench(open_case(run, config), [attack.card], config.replay)
    [people] = attack_once(attack, "analytic", bench)["people"]
    hits = [p["hits"] for p in people["planted"].values()]
    assert len(hits) == 3 and sum(hits) <= 2
    assert bound_people(TypeAdapter(PeopleCount).validate_python(people), alpha=0.01).reason.startswith(
        "it is blind here: it found"
    )


def test_the_round_of_a_single_client_hides_nothing_of_its_plants() -> None:
    """Who answers alone is read alone, and so is its plant."""
    run, config = ran(f"{__name__}:OneByOne")
    sent = messages(run.artifacts, set(Kind), "all")
    found = plant("updates", Lab.from_case(open_case(run, config)), sent, config.replay)
    by_id = {a.id: a for a in found.artifacts}
    people = [a for a in found.artifacts if f"{a.id}/unprotected" in by_id]
    assert people
    for a in people:
        for name, value in by_id[f"{a.id}/unprotected"].payload.items():
            np.testing.assert_allclose(a.payload[name], value, atol=1e-6)
