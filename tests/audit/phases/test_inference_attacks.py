"""Linkage, differencing and inference in a whole run: they see what they may, and no more."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.attacks.prototypes.prototype_difference import PrototypeDifference
from fedaudit.attacks.updates.label_counts_from_update import LabelCountsFromUpdate
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.view import grant_knowledge, view
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import Config
from fedaudit.fl.artifact import SERVER, Artifact, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.threats.threat import Position
from tests.audit.simulated import simulated

ATTACKS = ("prototype_linkage", "prototype_difference", "label_counts_from_update", "count_recovery")
SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.35, "reference": 0.25},
    },
    "method": {"name": "rebafl", "rounds": 2, "local_epochs": 1, "lr": 0.05, "batch_size": 20},
    "workers": 0,
    "record": "all",
    "replay": {"sizes": [1, 5], "clients": 3, "groups": 30},
    "attacks": [ATTACKS[0], {"name": ATTACKS[1], "grows": True}, *ATTACKS[2:]],
}


@cache
def ran(attacks: int = 2) -> tuple[RunDir, Config]:
    """With the first few attacks: by day those of pairs."""
    run, config = simulated({**SETTINGS, "attacks": SETTINGS["attacks"][:attacks]})
    attack.run(run, config, lambda *_: None)
    return run, config


@cache
def found(attacks: int = 2) -> dict[str, dict[str, Any]]:
    files = sorted(ran(attacks)[0].evidence.glob("[0-9]*.json"))
    return {f["name"]: f for f in (json.loads(p.read_text()) for p in files)}


@cache
def history() -> list[Artifact]:
    return read(ran()[0].artifacts)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_runs_finds_its_planted_leak_and_spares_its_control(name: str) -> None:
    result = found(len(ATTACKS))[name]
    assert result["status"] == "ran", result["reason"]
    higher = [e for e in result["evidence"] if e["higher_is_worse"]]
    planted = [e for e in higher if e["control"] == "positive"]
    assert any(e["interval"][0] > max(b["value"] for b in e["baselines"]) for e in planted)
    for e in result["evidence"]:
        if e["control"] == "negative":
            assert e["interval"][0] <= max(b["value"] for b in e["baselines"])


def test_only_attacks_that_ask_for_it_see_every_round_and_pairs() -> None:
    kinds = {Kind.PROTO_COUNTS}
    latest = messages(ran()[0].artifacts, kinds, "latest")
    every = messages(ran()[0].artifacts, kinds, "all")
    assert {a.round for a in latest} == {1} and {a.round for a in every} == {0, 1}
    assert PrototypeDifference.card.rounds == CountRecovery.card.rounds == "all"
    sizes = {
        e["condition"]["n"]
        for e in found()["prototype_linkage"]["evidence"]
        if e["condition"].get("origin") == "replayed"
    }
    assert sizes <= {1, 5}  # pairs would add 2 and 6


def test_pairs_differ_by_one_image_of_the_same_client_and_class() -> None:
    world = SimulatedCase(ran()[1])
    pairs = plant("pairs", Lab.from_case(world), history(), world.config.replay)
    assert len(pairs.artifacts) == len(pairs.groups) == 2 * 2 * 30
    for before, after in zip(pairs.artifacts[::2], pairs.artifacts[1::2], strict=True):
        old, new = pairs.groups[before.id], pairs.groups[after.id]
        assert before.note["pair"] == after.note["pair"] and before.sender == after.sender
        assert set(old) < set(new) and len(new) == len(old) + 1 == after.note["n"]
        assert before.payload["classes"] == after.payload["classes"]
        assert (world.data.train.y[new] == after.payload["classes"]).all()
        assert set(new) <= set(world.population.parts[after.sender.index or 0])


def test_recovered_features_are_exact_in_single_precision() -> None:
    errors = [e for e in found()["prototype_difference"]["evidence"] if e["measure"] == "feature_relative_error"]
    assert len(errors) == 2 and all(e["value"] < 1e-4 for e in errors)


def test_the_server_knows_what_it_sent_and_clients_do_not_see_uploads() -> None:
    seen = view(history(), SERVER, LabelCountsFromUpdate.card)
    assert {a.kind for a in seen} == {Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES}
    threat = replace(LabelCountsFromUpdate.card.threat, position=Position.CLIENT)
    card = replace(LabelCountsFromUpdate.card, threat=threat)
    third = Party.client(3)
    read = view(history(), third, card)
    assert {a.kind for a in read} == {Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES}
    assert {a.sender for a in read if a.kind != Kind.GLOBAL_MODEL} == {third}  # it knows what it sent


def test_counts_are_those_of_the_clients() -> None:
    world = SimulatedCase(ran()[1])
    seen = view(history(), SERVER, CountRecovery.card)
    claim = CountRecovery().run(seen, grant_knowledge(world, CountRecovery.card), np.random.default_rng(0))
    assert np.array_equal(claim["counts"], world.population.counts[claim["client"]])
