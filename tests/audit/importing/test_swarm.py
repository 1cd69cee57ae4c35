"""Federations without a server: who sent what to whom, and what ledger, survey, checks and questions say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.case.messages import read_arrivals
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.importing.summary import summary
from fedaudit.audit.importing.survey import Survey, identify_aggregation
from fedaudit.audit.observer.reach import read_traffic
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl import ledger
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Position
from fedaudit.reports.imported import ImportRecord
from tests.audit.importing.theirs import check

CLIENTS, ROUNDS = 3, 3
EVERYBODY = [f"client/{k}" for k in range(CLIENTS)]
SUBJECT: dict[str, Any] = {
    "title": "A swarm",
    "examples": {"classes": ["a", "b"], "shape": [1, 1, 2]},
    "method": {"name": "fedavg", "rounds": ROUNDS},
    "aggregation": "uniform",
}


def write_swarm(folder: Path, *, tells_itself: bool = True) -> Path:
    """Client t begins round t with its model and collects the others' into the next; its own is sent as well."""
    inbox, w = Inbox(folder / "inbox"), np.ones(3, "f4")
    for k in range(CLIENTS):
        inbox.client(f"hospital-{k}")
    for t in range(ROUNDS):
        chief, others = EVERYBODY[t], [x for x in EVERYBODY if x != EVERYBODY[t]]
        inbox.message(t, "relay", chief, others, {"global_model": {"w": w}}, receivers=others)
        sent = {k: w + np.float32(k + t + 1) for k in range(CLIENTS)}
        collects = EVERYBODY[(t + 1) % CLIENTS]
        for k, model in sent.items():
            if tells_itself or EVERYBODY[k] != collects:
                inbox.message(
                    t, "relay", EVERYBODY[k], [collects], {"local_model": {"w": model}}, receivers=[collects]
                )
        w = np.mean([*sent.values()], axis=0).astype("f4")
    inbox.message(ROUNDS, "release", "client/0", ["public"], {"global_model": {"w": w}})
    return inbox.folder


def take(folder: Path, inbox: Path, **stated: Any) -> tuple[RunDir, RecordedCase, ImportRecord]:
    config = validate(Config, {"subject": SUBJECT | stated}, "test")
    found = bring(folder / "run", config, ImportSources(inbox=inbox), lambda *_: None)
    run = RunDir(folder / "run")
    return run, RecordedCase(config.require_recorded(), run.artifacts), found


def test_the_ledger_of_a_swarm_covers_what_its_clients_send_each_other(tmp_path: Path) -> None:
    run, case, _ = take(tmp_path, write_swarm(tmp_path))
    releases = ledger.read(run.ledger)
    assert {(r.round, r.kind) for r in releases} == {
        (t, kind) for t in range(ROUNDS) for kind in ("global_model", "local_model")
    }
    assert verify(case, releases, manifest(run.artifacts)).issues == ()
    assert read_arrivals(run.artifacts) == {t: {0, 1, 2} for t in range(ROUNDS)}


def test_who_sends_noised_messages_twice_in_a_round_pays_for_both(tmp_path: Path) -> None:
    noise = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0}
    inbox = Inbox(tmp_path / "inbox")
    for value in (1, 2):
        for k in range(2):
            inbox.message(0, "uplink", f"client/{k}", ["server"], {"local_model": {"w": np.full(3, value, "f4")}})
    run, case, _ = take(tmp_path, inbox.folder, protections=[noise])
    releases = ledger.read(run.ledger)
    assert [r.sender for r in releases] == ["client/0", "client/0", "client/1", "client/1"]
    assert verify(case, releases, manifest(run.artifacts)).issues == ()


def test_messages_that_were_counted_and_not_recorded_are_paid_for_as_well(tmp_path: Path) -> None:
    noise = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0}
    inbox = Inbox(tmp_path / "inbox")
    for k in range(2):
        inbox.message(0, "uplink", f"client/{k}", ["server"], {"local_model": {"w": np.ones(3, "f4")}})
    told = {"traffic": "local_model", "round": 0, "channel": "uplink", "sender": "client", "seen_by": ["server"]}
    with open(inbox.folder / "manifest.jsonl", "a") as manifest_file:
        manifest_file.write(json.dumps(told | {"senders": 2, "messages": 6, "bytes": 72}) + "\n")
    run, case, _ = take(tmp_path, inbox.folder, protections=[noise])
    releases = ledger.read(run.ledger)
    assert [r.sender for r in releases] == ["client/0"] * 3 + ["client/1"] * 3
    assert verify(case, releases, manifest(run.artifacts)).issues == ()


def test_a_swarm_is_surveyed_and_checked_as_other_federations_are(tmp_path: Path) -> None:
    inbox = write_swarm(tmp_path)
    found = take(tmp_path, inbox)[2]
    assert Survey.from_inbox(inbox).heard == {*EVERYBODY} and Survey.from_inbox(inbox).has_updates
    told = "\n".join(summary(inbox))
    assert "rounds in which clients sent something: 3, 0 to 2" in told and "clients heard: 3 of 3" in told
    assert check(found, "rounds").status == "holds" and check(found, "meaning").status == "holds"
    assert check(found, "aggregate").status == "holds"
    assert identify_aggregation(Survey.from_inbox(inbox))[0] == "samples"  # no numbers were sent: each alike


def test_a_mean_with_an_update_that_its_collector_kept_is_not_held_against_the_others(tmp_path: Path) -> None:
    found = take(tmp_path, write_swarm(tmp_path, tells_itself=False))[2]
    assert check(found, "aggregate").status == "open"
    assert "No round was recorded with all it takes" in check(found, "aggregate").text


def test_nobody_is_a_server_where_clients_send_to_each_other_alone(tmp_path: Path) -> None:
    traffic = read_traffic(manifest(take(tmp_path, write_swarm(tmp_path))[0].artifacts))
    assert {r.position for r in traffic.reaches} == {Position.NEXT_CLIENT, Position.PUBLIC}


def test_what_a_client_is_said_to_send_as_a_server_does_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox")
    inbox.message(0, "downlink", "client/1", ["client"], {"global_model": {"w": np.ones(3, "f4")}})
    with pytest.raises(UserError, match=r"client/1 sends no downlink; from client to client is a relay"):
        take(tmp_path, inbox.folder)
