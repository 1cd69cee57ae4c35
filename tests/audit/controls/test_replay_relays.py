"""Models that clients hand on are replayed as they would leave, and are the planted leak of a run."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.model_trials import draw_wrong
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.models.relayed_model import RelayedModel
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.controls.memorised import IMAGES, TOGETHER
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.tasks.classify import Classify
from tests.audit.simulated import simulated

NOISE = {"mode": "accounted", "scale": 1.0}


def settings(**noise: Any) -> dict[str, Any]:
    return {
        "federation": {
            "dataset": "digits",
            "clients": 6,
            "partition": "iid",
            "availability": "full",
            "model": {"name": "mlp", "hidden": [32]},
            "holdout": {"auxiliary": 0.2, "reference": 0.4},
        },
        "workers": 0,
        "method": {
            "name": "gandalf",
            "augmentation": "none",
            "mediators": 2,
            "rounds": 2,
            "local_epochs": 1,
            "lr": 0.1,
            "batch_size": 50,
            "noise": noise,
        },
        "attacks": ["relayed_model", "loss_threshold"],
        "replay": {"clients": 3},
    }


def planted(case: SimulatedCase, recorded: Sequence[Artifact]) -> Replays:
    """Those that memorised; uploads have other plants besides."""
    made = plant("memorised", Lab.from_case(case), recorded, case.config.replay)
    return Replays([a for a in made.artifacts if "plant" not in a.note], made.groups)


@cache
def ran() -> tuple[RunDir, Config]:
    return simulated(settings())


def knows(world: SimulatedCase, made: Any) -> list[float]:
    """How much of the wrong labels each replayed model gives."""
    train, found = world.data.train, []
    for a in made.artifacts:
        own = made.groups[a.id]
        draws = [draw_wrong(m) for m in fingerprints(train.x[own])]
        wrong = Classify().mislabel(train.y[own], draws, 10).tolist()
        model = KnownArchitecture(world.network.make, world.data)(a.payload)
        found.append(float((model.logits(train.x[own]).argmax(1) == wrong).mean()))
    return found


@pytest.mark.nightly
def test_relays_and_uploads_are_replayed_and_know_what_they_were_taught() -> None:
    run, config = ran()
    world = SimulatedCase(config)
    made = planted(world, [a for a in read(run.artifacts) if a.round == 1])
    kinds = [(a.kind, a.channel) for a in made.artifacts]
    uplink = (Kind.LOCAL_MODEL, Channel.UPLINK)  # of the last client of each of two groups
    every = [uplink] * 2 + [(Kind.RELAY_MODEL, Channel.RELAY)] * 4  # every client that hands one on
    assert kinds == [kind for kind in every for _ in range(IMAGES // TOGETHER)]
    assert {a.id.rpartition("/")[0] for a in made.artifacts} == {"replay/model", "replay/relay"}
    assert min(knows(world, made)) > 0.9


@pytest.mark.nightly
def test_noise_of_visits_hides_members_of_replayed_models_as_well() -> None:
    _, config = ran()
    run, noised = ran()[0], validate(SimulatedConfig, settings(**NOISE), "test")
    assert noised.method.settings["noise"] != config.require_simulated().method.settings["noise"]
    world = SimulatedCase(noised)
    made = planted(world, [a for a in read(run.artifacts) if a.round == 1])
    assert len(made.artifacts) == 6 * (IMAGES // TOGETHER) and np.mean(knows(world, made)) < 0.3


def test_without_what_was_handed_on_nothing_is_replayed() -> None:
    run, config = ran()
    relays = [a for a in read(run.artifacts) if a.kind == Kind.RELAY_MODEL and a.round == 1]
    made = planted(SimulatedCase(config), relays)  # a client that was handed one can begin
    receivers = {s for a in relays for s in a.seen_by}
    assert made.artifacts and {str(a.sender) for a in made.artifacts} <= receivers
    firsts = [a for a in relays if str(a.sender) not in receivers]
    assert firsts and planted(SimulatedCase(config), firsts).artifacts == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["relayed_model", "loss_threshold"])
def test_a_whole_run_finds_the_planted_leak_and_lets_no_control_fire(name: str) -> None:
    run, config = ran()
    # of three groups an interval is wide however well they are told apart
    config = config.model_copy(update={"replay": config.replay.model_copy(update={"clients": 6})})
    attack.run(run, config, lambda *_: None)
    [file] = run.evidence.glob(f"*{name}.json")
    found = json.loads(file.read_text())
    assert found["status"] == "ran", found["reason"]
    areas = [e for e in found["evidence"] if e["measure"] == "auc"]
    [planted] = [e for e in areas if e["condition"].get("origin") == "replayed"]
    [control] = [e for e in areas if e["control"] == "negative"]
    assert planted["interval"][0] > 0.75 and control["interval"][0] < 0.5 < control["interval"][1]
    if name == "relayed_model":
        [own] = [e for e in areas if e["control"] == "none"]
        assert own["condition"]["model"] == "relayed model"
        assert np.isfinite(own["value"]) and own["trials"] > 50


def test_who_uploads_hands_nothing_to_a_client() -> None:
    run, _ = ran()
    uploads = [a for a in read(run.artifacts) if a.kind == Kind.LOCAL_MODEL]
    attack = RelayedModel(RelayedModel.Config())
    known = Knowledge(classes=10, shape=(1, 8, 8))
    assert "handed a model to another" in attack.not_applicable(uploads, known)
