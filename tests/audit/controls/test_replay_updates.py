"""Replayed updates are what the method itself would have sent, and reach only attacks on updates."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.observer.view import grant_knowledge, view
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import SERVER, Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from tests.audit.simulated import simulated

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 4,
        "partition": "iid",
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.2, "reference": 0.4},
    },
    "workers": 0,
    "replay": {"updates": [[1, 1, 6], [1, 4, 6], [3, 1, 6], [3, 4, 6]], "clients": 3},
    "attacks": [
        {"name": "analytic", "gallery": 30},
        {"name": "inverting_gradients", "iterations": 60, "gallery": 30, "per_size": 4},
    ],
}


def planted(case: SimulatedCase, recorded: Sequence[Artifact]) -> Replays:
    """Those of every size; single people are planted besides."""
    made = plant("updates", Lab.from_case(case), recorded, case.config.replay)
    kept = [a for a in made.artifacts if not a.id.startswith("replay/person")]
    return Replays(kept, {a.id: made.groups[a.id] for a in kept})


def people(case: SimulatedCase, recorded: Sequence[Artifact]) -> list[Artifact]:
    made = plant("updates", Lab.from_case(case), recorded, case.config.replay)
    assert all(len(made.groups[a.id]) == 1 for a in made.artifacts if a.id.startswith("replay/person"))
    return [a for a in made.artifacts if a.id.startswith("replay/person")]


@cache
def ran(method: str = "fedavg", protection: str = "", **more: Any) -> tuple[RunDir, Config]:
    settings = SETTINGS | {
        "method": {"name": method, "rounds": 2, "local_epochs": 1, "lr": 0.1, "batch_size": 10_000, **more},
        "protections": [json.loads(protection)] if protection else [],
    }
    return simulated(settings)


def history(run: RunDir) -> list[Artifact]:
    return [a for a in read(run.artifacts) if a.round == 1]


def replayed(run: RunDir, config: Config) -> Replays:
    return planted(SimulatedCase(config), history(run))


def test_each_holds_as_many_images_of_its_client_as_it_says() -> None:
    run, config = ran()
    made, world = replayed(run, config), SimulatedCase(config)
    assert len(made.artifacts) == len(made.groups) == 2 * 2 * 6
    assert len({a.sender for a in made.artifacts}) == 3
    for a in made.artifacts:
        assert a.kind == Kind.LOCAL_MODEL and a.origin == "replayed" and a.round == 1
        own = made.groups[a.id]
        assert len(np.unique(own)) == a.note["batch"]
        assert set(own) <= set(world.population.parts[a.sender.index or 0])


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedrs", "fednova"])
def test_a_replay_of_all_images_in_one_step_is_the_upload_itself(method: str) -> None:
    run, config = ran(method)
    parts = SimulatedCase(config).population.parts
    sizes = sorted({1, *(len(p) for p in parts)})
    replay = {"updates": [[n, 1, 4] for n in sizes], "clients": 4}
    world = SimulatedCase(validate(Config, config.model_dump() | {"replay": replay}, "test"))
    uploads = {a.sender: a for a in history(run) if a.kind in (Kind.LOCAL_MODEL, Kind.NORMALIZED_DELTA)}
    whole = 0
    for a in planted(world, history(run)).artifacts:
        sent = uploads[a.sender].payload
        gap = max(np.abs(a.payload[k] - v).max() for k, v in sent.items())
        if a.note["batch"] == 1:
            assert gap > 1e-3
        elif a.note["batch"] == len(parts[a.sender.index or 0]):
            assert gap < 1e-5
            whole += 1
    assert whole >= 4


@pytest.mark.parametrize("method", ["scaffold", "rebafl", "moon"])
def test_methods_with_memory_or_further_messages_are_replayed(method: str) -> None:
    run, config = ran(method)
    made = replayed(run, config)
    assert len(made.artifacts) == 24
    assert {a.kind for a in made.artifacts} <= {Kind.LOCAL_MODEL, Kind.MODEL_DELTA}


def test_replays_go_through_the_protections_with_noise_of_their_own() -> None:
    noise = json.dumps({"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0})
    run, config = ran(protection=noise)
    bare = validate(Config, config.model_dump() | {"protections": []}, "test")
    noised, plain = (planted(SimulatedCase(c), history(run)).artifacts for c in (config, bare))
    apart = [b.payload["head.bias"] - a.payload["head.bias"] for a, b in zip(plain, noised, strict=True)]
    assert min(np.abs(d).max() for d in apart) > 0.1
    assert np.std([d[0] for d in apart]) > 0.1


def test_single_people_are_planted_through_every_clients_code_with_the_protections_and_without() -> None:
    noise = json.dumps({"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0})
    run, config = ran(protection=noise)
    bare = SimulatedCase(validate(Config, config.model_dump() | {"protections": []}, "test"))
    both, plain = people(SimulatedCase(config), history(run)), people(bare, history(run))
    assert Counter((a.sender.index, a.origin) for a in both) == {
        (k, origin): 6 for k in range(4) for origin in (REPLAYED, UNPROTECTED)
    }
    assert {a.origin for a in plain} == {REPLAYED}  # nothing is planted twice
    without = [a.payload["head.bias"] for a in both if a.origin == UNPROTECTED]
    noised = [a.payload["head.bias"] for a in both if a.origin == REPLAYED]
    same = [a.payload["head.bias"] for a in plain]
    assert all(np.array_equal(a, b) for a, b in zip(without, same, strict=True))
    assert min(np.abs(a - b).max() for a, b in zip(noised, same, strict=True)) > 0.1


def test_without_a_broadcast_or_uploads_nothing_is_replayed() -> None:
    run, config = ran()
    sent = [a for a in history(run) if a.kind != Kind.GLOBAL_MODEL]
    assert planted(SimulatedCase(config), sent).artifacts == []
    down = [a for a in history(run) if a.kind == Kind.GLOBAL_MODEL]
    assert planted(SimulatedCase(config), down).artifacts == []


@pytest.mark.nightly
def test_attacks_on_updates_find_the_planted_leak_and_spare_the_control() -> None:
    run, config = ran()
    attack.run(run, config, lambda *_: None)
    for path in sorted(run.evidence.glob("[0-9]*.json")):
        result = json.loads(path.read_text())
        assert result["status"] == "ran", result["reason"]
        planted = [
            e
            for e in result["evidence"]
            if e["measure"] == "named" and (e["condition"].get("n"), e["condition"].get("steps")) == (1, 1)
        ]
        (rank,) = planted
        assert rank["control"] == "positive" and rank["value"] == 1
        (control,) = [e for e in result["evidence"] if e["control"] == "negative"]
        assert control["interval"][0] <= control["baselines"][0]["value"]
        assert {g["title"].split(", ")[-1] for g in result["galleries"]} == {"recorded", "replayed"}


def test_hidden_uploads_stay_hidden_in_replays() -> None:
    run, config = ran()
    hidden = [replace(a, seen_by=()) if a.kind == Kind.LOCAL_MODEL else a for a in history(run)]
    made = planted(SimulatedCase(config), hidden)
    assert made.artifacts and all(a.seen_by == () for a in made.artifacts)
    seen = view([*hidden, *made.artifacts], SERVER, InvertingGradients.card)
    assert {a.kind for a in seen} <= {Kind.GLOBAL_MODEL, Kind.NUM_EXAMPLES}
    knowledge = grant_knowledge(SimulatedCase(config), InvertingGradients.card)
    assert "no client sends its model" in InvertingGradients().not_applicable(seen, knowledge)
