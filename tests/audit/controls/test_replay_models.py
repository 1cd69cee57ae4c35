"""Replayed models memorised their wrongly labelled images, and are the planted leak of a whole run."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.model_trials import draw_wrong
from fedaudit.attacks.evidence import UNPROTECTED
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays, Visit, find_received_message
from fedaudit.audit.controls.memorised import FEW, IMAGES, TOGETHER
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.tasks.survival import Survival
from tests.audit.simulated import simulated

PLANTS = ("a few examples, seen once", "trained as the run trains")
SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 4,
        "partition": "iid",
        "availability": "full",
        "model": {"name": "mlp", "hidden": [32]},
        "holdout": {"auxiliary": 0.2, "reference": 0.4},
    },
    "workers": 0,
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1, "lr": 0.1, "batch_size": 50},
    "attacks": ["loss_threshold", {"name": "lira", "shadows": 4, "epochs": 2}],
    "replay": {"clients": 3},
}


def planted(case: SimulatedCase, recorded: Sequence[Artifact]) -> Replays:
    return plant("memorised", Lab.from_case(case), recorded, case.config.replay)


@cache
def ran() -> tuple[RunDir, Config]:
    return simulated(SETTINGS)


def test_a_replayed_model_gives_the_wrong_labels_that_it_was_taught_and_no_others() -> None:
    run, config = ran()
    world = SimulatedCase(config)
    made = planted(world, [a for a in read(run.artifacts) if a.round == 1])
    each = IMAGES // TOGETHER
    assert len(made.artifacts) == 4 * each + 2 * 3  # memorised people of every client, other plants of three
    few, like = ([a for a in made.artifacts if a.note.get("plant") == p] for p in sorted(PLANTS))
    assert {len(made.groups[a.id]) for a in few} == {FEW} and len(few) == len(like) == 3
    train = world.data.train
    for a in (a for a in made.artifacts if "plant" not in a.note):
        assert a.origin == "replayed" and a.kind == Kind.LOCAL_MODEL
        own = made.groups[a.id]
        assert len(own) == TOGETHER
        assert set(own) <= set(world.population.parts[a.sender.index or 0])
        draws = [draw_wrong(m) for m in fingerprints(train.x[own])]
        wrong = Classify().mislabel(train.y[own], draws, 10).tolist()
        model = KnownArchitecture(world.network.make, world.data)(a.payload)
        assert (model.logits(train.x[own]).argmax(1) == wrong).mean() > 0.9
        assert (train.y[own] != wrong).all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("model", ["logreg", {"name": "mlp", "hidden": [2]}])
def test_the_smallest_model_gives_the_wrong_labels_too(model: Any) -> None:
    """One that cannot tell them apart would show an attack nothing, and no bound would rest on it."""
    federation = {**SETTINGS["federation"], "model": model, "clients": 2}
    run, config = simulated({**SETTINGS, "federation": federation})
    world = SimulatedCase(config)
    train, right = world.data.train, []
    made = planted(world, read(run.artifacts))
    for a in (a for a in made.artifacts if "plant" not in a.note):
        own = made.groups[a.id]
        draws = [draw_wrong(m) for m in fingerprints(train.x[own])]
        wrong = Classify().mislabel(train.y[own], draws, 10).tolist()
        net = KnownArchitecture(world.network.make, world.data)(a.payload)
        right += (net.logits(train.x[own]).argmax(1) == wrong).tolist()
    assert len(right) == 2 * IMAGES and np.mean(right) > 0.9


def test_people_of_whom_a_model_learns_an_order_are_learnt_together_and_their_membership_is_found() -> None:
    """Of Cox's loss, pairs by themselves were found by nobody: an AUC of .515."""
    federation = {
        **SETTINGS["federation"],
        "dataset": {"name": "patients", "patients": 500, "task": "survival"},
        "holdout": {"auxiliary": 0.2, "reference": 0.5},
        "clients": 2,
    }
    run, config = simulated({**SETTINGS, "federation": federation, "attacks": ["loss_threshold"]})
    world = SimulatedCase(config)
    train, made = world.data.train, planted(world, read(run.artifacts))
    people = [a for a in made.artifacts if "plant" not in a.note]
    assert [len(made.groups[a.id]) for a in people] == [IMAGES] * 2
    for a in people:
        own = made.groups[a.id]
        draws = [draw_wrong(m) for m in fingerprints(train.x[own])]
        wrong = torch.from_numpy(Survival().mislabel(train.y[own], draws, 1))
        risks = torch.from_numpy(
            KnownArchitecture(world.network.make, world.data)(a.payload).logits(train.x[own])
        )
        assert Survival().scores(risks, wrong).mean() > 0.9
    attack.run(run, config, lambda *_: None)
    [file] = run.evidence.glob("0*.json")
    areas = [e for e in json.loads(file.read_text())["evidence"] if e["measure"] == "auc"]
    found = {(e["control"], e["condition"].get("origin")): e for e in areas}
    assert found["positive", "replayed"]["interval"][0] > 0.6
    assert found["negative", None]["interval"][0] <= 0.5 <= found["negative", None]["interval"][1]


@pytest.mark.nightly
def test_without_a_recorded_broadcast_nothing_is_replayed() -> None:
    run, config = ran()
    uploads = [a for a in read(run.artifacts) if a.kind == Kind.LOCAL_MODEL]
    assert planted(SimulatedCase(config), uploads).artifacts == []
    moved = [replace(a, round=a.round + 7) for a in uploads]
    assert planted(SimulatedCase(config), [*read(run.artifacts), *moved]).artifacts  # older ones serve


@pytest.mark.nightly
def test_a_whole_run_finds_the_planted_leak_and_lets_no_control_fire() -> None:
    run, config = ran()
    attack.run(run, config, lambda *_: None)
    for file in sorted(run.evidence.glob("0*.json")):
        found = json.loads(file.read_text())
        assert found["status"] == "ran", found["reason"]
        areas = [e for e in found["evidence"] if e["measure"] == "auc"]
        graded = {e["condition"]["origin"]: e for e in areas if e["control"] == "positive"}
        assert {*graded} == {"replayed", *(f"replayed, {p}" for p in PLANTS)}
        planted = graded["replayed"]
        (control,) = [e for e in areas if e["control"] == "negative"]
        # intervals respect that there are three models only
        assert planted["value"] > 0.65 and planted["interval"][0] > 0.6
        assert control["interval"][0] <= 0.5 <= control["interval"][1]
        assert {e["condition"].get("model") for e in areas} >= {"global model", "update"}
        assert len(found["curves"]) == 2 + len(graded)
        assert np.isfinite([e["value"] for e in areas]).all()


def test_people_planted_without_the_protections_are_those_of_a_run_that_has_none() -> None:
    """One visit serves both: what is sent is protected, what is trained is the same."""
    run, config = ran()
    noised = validate(Config, {**SETTINGS, "protections": ["dp_gaussian"]}, "test")
    recorded = [a for a in read(run.artifacts) if a.round == 1]
    plain, both = (planted(SimulatedCase(c), recorded) for c in (config, noised))
    bare = {a.id: a for a in both.artifacts if a.origin == UNPROTECTED}
    assert len(bare) == 4 * IMAGES // TOGETHER
    for a in (a for a in plain.artifacts if "plant" not in a.note):
        other = bare[f"{a.id}/unprotected"]
        assert all((v == other.payload[k]).all() for k, v in a.payload.items())
        sent = next(b for b in both.artifacts if b.id == a.id)
        assert any((v != sent.payload[k]).any() for k, v in a.payload.items())


@pytest.mark.parametrize("protection", ["", "dp_gaussian", "dp_sgd"])
def test_visits_side_by_side_are_each_of_them(protection: str) -> None:
    run, _ = ran()
    config = validate(Config, {**SETTINGS, "protections": [protection] if protection else []}, "test")
    lab, recorded = Lab.from_case(SimulatedCase(config)), read(run.artifacts)
    assert lab is not None
    uploads = [a for a in recorded if a.kind == Kind.LOCAL_MODEL and a.round == 1]
    visits = []
    for number, upload in enumerate(uploads):
        client = upload.sender.number
        alone = lab.alone(client, lab.owned[client][:2], Streams(number), epochs=20, batch=2)
        visits.append(Visit(alone, upload, find_received_message(recorded, upload)))
    assert visits[0].lab.width > 1
    together = lab.replay_together(visits)
    for visit, messages in zip(visits, together, strict=True):
        one = visit.lab.replay_each(visit.like, visit.received)
        assert [origin for origin, _ in one] == [origin for origin, _ in messages]
        assert len(one) == 1 + bool(protection)
        for (_, a), (_, b) in zip(one, messages, strict=True):
            assert a is not None and b is not None
            for name, value in a[Kind.LOCAL_MODEL].items():
                torch.testing.assert_close(value, b[Kind.LOCAL_MODEL][name], rtol=0, atol=1e-5)
    first, second = (sent[-1][1] for sent in together[:2])
    assert first is not None and second is not None
    assert (first[Kind.LOCAL_MODEL]["head.bias"] - second[Kind.LOCAL_MODEL]["head.bias"]).abs().max() > 1e-3
