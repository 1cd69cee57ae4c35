"""Planted releases are of one person a class, by every client's code, from the first model that was sent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.fl.recording.recorder import read
from tests.audit.simulated import simulated

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 3,
        "partition": "iid",
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.2, "reference": 0.4},
    },
    "workers": 0,
    "record": "all",
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1, "lr": 0.1, "batch_size": 50},
    "attacks": ["loss_threshold"],
}


def planted(**changes: Any) -> tuple[Replays, SimulatedCase]:
    run, config = simulated(SETTINGS | changes)
    case = SimulatedCase(config)
    return plant("released", Lab.from_case(case), list(read(run.artifacts)), config.replay), case


def count(labels: Any) -> Mapping[int, int]:
    return dict(zip(*np.unique(labels, return_counts=True), strict=True))


def test_each_is_of_one_person_of_every_class_whoever_is_played() -> None:
    made, case = planted()
    classes = {int(case.data.train.y[r]) for rows in case.examples.parts.values() for r in rows}
    assert len(made.artifacts) == 10  # a hundred people
    assert {a.sender.number for a in made.artifacts} == {0, 1, 2}
    for a in made.artifacts:
        assert a.round == 0 and a.origin == REPLAYED
        assert count(case.data.train.y[made.groups[a.id]]) == dict.fromkeys(sorted(classes), 1)


def test_they_are_made_with_the_protections_and_without() -> None:
    made, _ = planted(
        protections=[{"name": "dp_gaussian", "kinds": ["local_model"], "clip_norm": 1.0, "noise_multiplier": 1.0}]
    )
    assert {a.origin for a in made.artifacts} == {REPLAYED, UNPROTECTED} and len(made.artifacts) == 20


def test_where_nobody_sends_a_model_nothing_is_planted() -> None:
    made, _ = planted(
        method={"name": "fedproto", "rounds": 1, "local_epochs": 1, "lr": 0.1}, attacks=["hidden_images"]
    )
    assert made.artifacts == []
