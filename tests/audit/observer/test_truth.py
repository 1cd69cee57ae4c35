"""The truth about a run: members are the examples of the clients that were heard, and of nobody else."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.models.output_scores import LossThreshold
from fedaudit.audit.case.messages import behind
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer import truth as truth_module
from fedaudit.audit.observer.truth import KnownTruth
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.fl.artifact import SERVER, Channel, Party, Route
from fedaudit.fl.families.drawn_batches import iterate_batches
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import MANIFEST, Recorder
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.batches import split_into_batches
from tests.audit.simulated import simulated
from tests.contracts.growth import sent


@cache
def ran(method: str = "fedavg", rounds: str = "all", **settings: Any) -> SimulatedCase:
    """Ten clients of which one or two answer in a round, and few examples, so that models learn them by heart."""
    run, config = simulated(
        {
            "federation": {
                "dataset": "digits",
                "limit": 900,
                "clients": 10,
                "availability": {"name": "bernoulli", "p": 0.15},
                "failures": {"reply_loss": 0.2},
                "model": {"name": "mlp", "hidden": [64]},
                "holdout": {"auxiliary": 0.1, "reference": 0.4},
            },
            "method": {"name": method, "rounds": 3, "lr": 0.1, **settings},
            "workers": 0,
            "record": rounds,
        }
    )
    return SimulatedCase(config, run.artifacts)


def members(case: SimulatedCase, artifact: str) -> int:
    truth = KnownTruth(case, {}, {})
    return sum(len(truth.members(artifact, c)) for c in range(len(case.data.classes)))


def area(case: SimulatedCase) -> float:
    """AUC of the loss as an attack on the server's model."""
    attack = LossThreshold()
    found = attack_once(attack, "loss_threshold", Bench(case, [attack.card], case.config.replay))["evidence"]
    wanted = (e for e in found if e["measure"] == "auc" and e["condition"].get("model") == "global model")
    return float(next(wanted)["value"])


def rewritten(case: SimulatedCase, folder: Path, behind: list[int] | None = None) -> Path:
    """The run's record, whose manifest says this of every message, or nothing of who is behind it."""
    assert case.artifacts is not None
    shutil.copytree(case.artifacts, folder, dirs_exist_ok=True)
    lines = [json.loads(line) for line in (folder / MANIFEST).read_text().splitlines()]
    for line in lines:
        line.pop("behind")
        if behind is not None and "message" in line:
            line["behind"] = dict.fromkeys(line["kinds"], behind)
    (folder / MANIFEST).write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_members_of_the_servers_model_are_those_of_the_clients_it_heard() -> None:
    case = ran()
    heard = case.participation.heard
    assert heard is not None
    for t in range(3):
        clients = set().union(*(heard.get(r, frozenset()) for r in range(t)))
        assert members(case, f"r{t:05}/server.downlink/global_model") == sum(
            len(case.examples.parts[k]) for k in clients
        )
    assert 0 < len(set().union(*heard.values())) < 10


@pytest.mark.nightly
def test_clients_that_nobody_heard_do_not_hide_those_that_were(tmp_path: Path) -> None:
    """The model learnt the few that it heard by heart; among all ten clients' images they would hardly show."""
    case = ran(local_epochs=80, batch_size=10)
    assert area(case) > 0.62 > 0.57 > area(replace(case, artifacts=rewritten(case, tmp_path, list(range(10)))))


@pytest.mark.parametrize("is_told", [True, False])
def test_who_is_behind_what_many_are_sent_is_held_once_and_not_for_each(is_told: bool, tmp_path: Path) -> None:
    recorder, clients = Recorder(tmp_path), range(40)
    for k in clients:
        up = Route(0, Channel.UPLINK, Party.client(k), ("server",), ("server",))
        recorder.message(up, {Kind.LOCAL_MODEL: {"w": torch.zeros(1)}})
    recorder.end_round(0)
    for k in clients:
        down = Route(1, Channel.DOWNLINK, SERVER, (f"client/{k}",), (f"client/{k}",))
        recorder.message(down, {Kind.GLOBAL_MODEL: {"w": torch.zeros(1)}})
    recorder.end_round(1)
    recorder.manifest.close()
    if not is_told:
        lines = [json.loads(line) for line in (tmp_path / MANIFEST).read_text().splitlines()]
        untold = ({k: v for k, v in line.items() if k != "behind"} for line in lines)
        (tmp_path / MANIFEST).write_text("\n".join(map(json.dumps, untold)))
    found = behind(tmp_path)
    down = [who for name, who in found.items() if "downlink" in name]
    assert len(down) == 40 and down[0] == {*clients} and len({id(who) for who in down}) == 1
    assert found["r00000/client-3.uplink/local_model"] == {3}


@pytest.mark.parametrize("method", ["fedavg", "gandalf", "fedasync"])
def test_a_record_of_everything_tells_the_same_as_the_recorder(method: str, tmp_path: Path) -> None:
    case = ran(method, **({"augmentation": "none"} if method == "gandalf" else {}))
    assert case.artifacts is not None
    told = behind(case.artifacts)
    assert any(0 < len(clients) < 10 for clients in told.values())
    assert behind(rewritten(case, tmp_path)) == told


def test_rounds_that_were_not_kept_count() -> None:
    whole, last = ran(), ran(rounds="last")
    assert whole.artifacts is not None and last.artifacts is not None
    every, some = behind(whole.artifacts), behind(last.artifacts)
    assert 0 < len(some) < len(every) and all(every[id] == clients for id, clients in some.items())


def test_where_nobody_knows_who_was_heard_there_is_no_truth(tmp_path: Path) -> None:
    case = ran(rounds="last")
    unsaid = SimulatedCase(case.config, rewritten(case, tmp_path))
    with pytest.raises(UserError, match="nobody knows whose examples are behind"):
        members(unsaid, "r00002/server.downlink/global_model")
    own = next(id for id in behind(tmp_path) if "client-" in id)
    client = int(own.partition("client-")[2].partition(".")[0])
    assert np.isclose(members(unsaid, own), len(case.examples.parts[client]))


def test_the_batches_of_a_visit_are_drawn_once_however_many_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = ran()
    own = case.examples.parts[0]
    sizes = split_into_batches(len(own), case.training.batch_size)
    drawn = list(iterate_batches(case.streams, 0, 0, sizes, case.training.local_epochs))
    batches = {f"b{i}": replace(sent(Kind.SMASHED, 0), id=f"b{i}") for i in range(len(drawn))}
    times = list[int]()
    monkeypatch.setattr(truth_module, "iterate_batches", lambda *of: times.append(1) or iterate_batches(*of))
    truth = KnownTruth(case, batches, {})
    for i, places in enumerate(drawn):
        found = truth.find_batch(f"b{i}")
        assert found is not None and np.array_equal(found.rows, own[places.numpy()])
    assert len(drawn) > 1 and len(times) == 1
