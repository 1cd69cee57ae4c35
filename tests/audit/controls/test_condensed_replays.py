"""Replayed condensed images in a whole run: the method's own code, by class size, with a planted leak."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.condensed._images import REAL_START
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.condensed import _TWICE, count_steps
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.effort import PlayedClients
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from tests.audit.simulated import simulated

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "partition": {"name": "dirichlet", "alpha": 0.3},
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.35, "reference": 0.25},
    },
    "method": {"name": "feddc_condense", "rounds": 2, "iterations": 8, "lr": 0.05},
    "workers": 0,
    "record": "all",
    "replay": {"sizes": [1, 5], "clients": 3, "groups": 12},
    "attacks": ["condensed_recovery", "condensed_membership"],
}


def planted(case: SimulatedCase, recorded: Sequence[Artifact]) -> Replays:
    return plant("condensed", Lab.from_case(case), recorded, case.config.replay)


@cache
def ran() -> tuple[RunDir, Config]:
    return simulated(SETTINGS)


@cache
def recorded() -> tuple[Artifact, ...]:
    return tuple(read(ran()[0].artifacts))


@cache
def replays() -> Replays:
    return planted(SimulatedCase(validate(Config, SETTINGS, "test")), recorded())


@pytest.mark.nightly
def test_every_size_is_replayed_as_the_method_does_and_the_smallest_from_real_images_too() -> None:
    made = {(a.note["n"], a.note["init"]) for a in replays().artifacts}
    assert made == {(1, "own"), (1, "real"), (5, "own")}
    assert all(a.origin == "replayed" for a in replays().artifacts)


def test_replays_are_made_of_as_many_images_of_the_client_and_class_as_they_say() -> None:
    world, found = SimulatedCase(ran()[1]), replays()
    labels = {
        a.id.rpartition("/")[0]: int(a.payload["labels"][0])
        for a in found.artifacts
        if a.kind is Kind.CONDENSED_LABELS
    }
    for a in found.artifacts:
        if a.kind is Kind.CONDENSED_IMAGES:
            group = found.groups[a.id]
            assert len(group) == len(set(group)) == a.note["n"]
            assert set(group) <= set(world.population.parts[a.sender.index or 0])
            assert set(world.data.train.y[group]) == {labels[a.id.rpartition("/")[0]]}


def test_iterations_are_stated_for_as_many_groups_as_are_made() -> None:
    case = SimulatedCase(ran()[1])
    images = [a for a in replays().artifacts if a.kind is Kind.CONDENSED_IMAGES]
    made = Counter(a.note["n"] for a in images)
    stated = count_steps(PlayedClients.of(case, 0), case.config.replay, case.training)
    assert made.total() >= 40
    starts = Counter(a.note["init"] for a in images if a.note["n"] == 1)
    assert starts["real"] <= SETTINGS["replay"]["groups"] < starts["own"]  # a leak of this size is seen in few
    iterations = SETTINGS["method"]["iterations"]
    assert stated[5] == iterations * made[5]
    assert stated[1] == iterations * (made[1] + _TWICE * made.total())


def test_a_method_that_condenses_nothing_has_no_replays() -> None:
    config = validate(Config, SETTINGS | {"method": {"name": "fedavg", "rounds": 2}}, "test")
    assert planted(SimulatedCase(config), recorded()).artifacts == []


def test_replays_are_the_same_when_made_again() -> None:
    method = SETTINGS["method"] | {"iterations": 3}
    few = SETTINGS | {"method": method, "replay": {"sizes": [1, 2], "clients": 1, "groups": 2}}
    first, second = (
        planted(SimulatedCase(validate(Config, few, "test")), recorded()).artifacts for _ in range(2)
    )
    assert first
    for a, b in zip(first, second, strict=True):
        assert all(np.array_equal(a.payload[k], b.payload[k]) for k in a.payload)


@pytest.mark.nightly
def test_a_run_separates_noise_from_real_starts_and_finds_the_single_images() -> None:
    run, config = simulated(SETTINGS | {"method": SETTINGS["method"] | {"iterations": 80}})
    attack.run(run, config, lambda *_: None)
    files = [json.loads(p.read_text()) for p in sorted(run.evidence.glob("[0-9]*.json"))]
    assert [f["status"] for f in files] == ["ran", "ran"]
    recovery = [e for e in files[0]["evidence"] if e["measure"] == "named"]
    by_origin = {(e["condition"].get("origin"), e["condition"].get("n")): e for e in recovery}
    real, noise = by_origin[REAL_START, 1.0], by_origin["replayed", 1.0]
    assert real["control"] == "positive" and real["value"] == 1
    assert noise["control"] == "none" and noise["value"] > 0.7
    assert by_origin["replayed", 5.0]["value"] < noise["value"]
