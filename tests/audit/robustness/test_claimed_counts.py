"""Claimed counts beside updates: planted lies are named, honest clients of every method that counts are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.updates.label_counts_from_update import LabelCountsFromUpdate
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.effort import READ, VISITS, PlayedClients
from fedaudit.audit.phases.plan import execute
from fedaudit.audit.robustness.claimed_counts import (
    FLIPPED,
    FREE_RIDING,
    INFLATION,
    CountBench,
    check_claimed_counts,
    count_steps,
    read_count,
)
from fedaudit.audit.robustness.contradicted_counts import Contradicted
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.verdict.judge import judge_subject
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.runtime.side_by_side import share_cores
from fedaudit.reports.result import Outcome, Severity
from fedaudit.reports.robustness import CheckedCount, CheckedCounts
from tests.fl.test_all_methods import adapters

BASE: dict[str, Any] = {
    "title": "Claimed counts",
    "seed": 7,
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "partition": {"name": "dirichlet", "alpha": 0.3},
        "availability": {"name": "bernoulli", "p": 1},
        "holdout": {"server": 0.1},
        "model": "mlp",
    },
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 2, "batch_size": 16, "lr": 0.05},
    "attacks": [],
    "noise_audit": {"play": False},
}
MALICIOUS = [2]
COUNTING = [
    m
    for m in catalog.names("methods")
    if {Kind.NUM_EXAMPLES, Kind.PROTO_COUNTS} & set(catalog.load("methods", m).card.uplink)
    and {*UPDATES, Kind.NORMALIZED_DELTA} & set(catalog.load("methods", m).card.uplink)
]


def simulated(folder: Path, **changes: Any) -> tuple[RunDir, Config]:
    run, config = RunDir.create(folder / "run"), overridden(BASE, changes, where="the test")
    execute(run, config, ("simulate",), lambda *_: None, skip_finished=True, workers=0)
    return run, config


def checked(folder: Path, **changes: Any) -> CheckedCounts:
    return check_claimed_counts(open_case(*simulated(folder, **changes)), LabelCountsFromUpdate())


@pytest.mark.parametrize(
    ("adversary", "words"),
    [
        ({"name": "count_inflation", "factor": 10}, "as with an inflated count"),
        pytest.param({"name": "label_flip"}, "as with false labels", marks=pytest.mark.nightly),
        pytest.param({"name": "free_rider", "mode": "zero"}, "as of a free rider", marks=pytest.mark.nightly),
    ],
    ids=lambda x: x["name"] if isinstance(x, dict) else "",
)
def test_a_planted_lie_is_named_and_nobody_else(adversary: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = checked(tmp_path, adversary={**adversary, "clients": MALICIOUS})
    assert [c.client for c in found.contradicted] == MALICIOUS and len(found.clients) >= 4
    finding = judge_subject(Contradicted(found), load_policy("default"))
    assert finding.severity == Severity.HIGH and finding.rule == "counts-contradicted-high"
    assert words in finding.summary and "Client 2 claims" in finding.summary


@pytest.mark.parametrize("method", ["fedavg", pytest.param("rebafl", marks=pytest.mark.nightly)])
def test_honest_clients_are_not_named(method: str, tmp_path: Path) -> None:
    found = checked(tmp_path, method={"name": method})
    assert not found.contradicted and not found.missed and found.clients
    assert judge_subject(Contradicted(found), load_policy("default")).outcome == Outcome.NOT_DEMONSTRATED


def test_clients_are_played_side_by_side_with_the_same_numbers(tmp_path: Path) -> None:
    case = open_case(*simulated(tmp_path, adversary={"name": "count_inflation", "clients": MALICIOUS}))
    here = check_claimed_counts(case, LabelCountsFromUpdate())
    with share_cores(2):
        there = check_claimed_counts(case, LabelCountsFromUpdate())
    assert here == there and here.clients


def test_what_is_stated_is_within_a_factor_of_two_of_what_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = simulated(tmp_path)
    case = open_case(run, config)
    assert case.training is not None
    epochs = case.training.local_epochs
    trained, read = list[int](), list[int]()
    train, shares = CountBench._train_reply, LabelCountsFromUpdate.shares

    def count_training(bench: CountBench, like: Artifact, rows: Any, *name: Any, **more: Any) -> Any:
        trained.append(len(rows) * epochs)
        return train(bench, like, rows, *name, **more)

    def count_reading(attack: LabelCountsFromUpdate, *args: Any) -> Any:
        read.append(attack.config.points * len(case.examples.auxiliary))
        return shares(attack, *args)

    monkeypatch.setattr(CountBench, "_train_reply", count_training)
    monkeypatch.setattr(LabelCountsFromUpdate, "shares", count_reading)
    check_claimed_counts(case, LabelCountsFromUpdate())
    clients = PlayedClients.of(case, case.network_size.parameters)
    stated = count_steps(clients, config.replay, case.training)
    reading = len(case.examples.auxiliary)
    for many, counted in (
        (stated.pop(reading) * reading, sum(read) / READ),
        (stated.pop(VISITS), len(trained)),
        (sum(size * steps for size, steps in stated.items()), sum(trained)),
    ):
        assert counted / 2 <= many <= 2 * counted, (many, counted)


@pytest.mark.nightly
@pytest.mark.parametrize(("method", "seed"), [(m, 8 + i % 2) for i, m in enumerate(COUNTING)])
def test_honest_clients_of_no_method_are_named(method: str, seed: int, tmp_path: Path) -> None:
    known = catalog.load("methods", method).Config.__dataclass_fields__
    settings = {k: v for k, v in BASE["method"].items() if k in known} | {"name": method}
    federation = BASE["federation"] | adapters(method, "layers.0")
    base = {**BASE, "federation": federation, "method": settings, "seed": seed}
    run, config = RunDir.create(tmp_path / "run"), overridden(base, {}, where="the test")
    execute(run, config, ("simulate",), lambda *_: None, skip_finished=True, workers=0)
    assert check_claimed_counts(open_case(run, config), LabelCountsFromUpdate()).contradicted == []


def test_a_method_that_sends_no_count_is_not_checked(tmp_path: Path) -> None:
    found = checked(tmp_path, method={"weighting": "uniform"})
    assert "together with a count" in found.reason
    finding = judge_subject(Contradicted(found), load_policy("default"))
    assert finding.outcome == Outcome.NOT_APPLICABLE and "compared" in finding.title


def test_without_examples_of_its_own_the_auditor_says_so(tmp_path: Path) -> None:
    assert "holdout.auxiliary" in checked(tmp_path, federation={"holdout": {"auxiliary": 0}}).reason


def test_lies_that_would_not_have_been_seen_leave_the_question_open() -> None:
    odd = CheckedCount(client=0, claimed=9, distance=1.4, length=1, likeness=0, contradicted=True)
    blind = CheckedCounts(probes=6, planted=3, missed=[FLIPPED], clients=[odd])
    finding = judge_subject(Contradicted(blind), load_policy("default"))
    assert finding.outcome == Outcome.INCONCLUSIVE and FLIPPED in finding.reason
    assert "Client 0" not in finding.summary
    assert {INFLATION, FLIPPED, FREE_RIDING} == {"counts times ten", "false labels", "a free rider"}


@pytest.mark.parametrize("counts", [[3, -1, 0], [float("nan"), 1, 2], [float("inf"), 1, 2], [0, 0, 0]])
def test_counts_that_are_no_shares_are_read_as_a_number_alone(counts: list[float]) -> None:
    upload, number, claim = (
        Artifact(
            id=f"0/{kind}",
            kind=kind,
            round=0,
            channel=Channel.UPLINK,
            sender=Party.client(1),
            seen_by=(str(SERVER),),
            payload=payload,
        )
        for kind, payload in (
            (Kind.LOCAL_MODEL, {}),
            (Kind.NUM_EXAMPLES, {"count": np.array(5)}),
            (Kind.LABEL_COUNTS, {"counts": np.array(counts)}),
        )
    )
    assert read_count(upload, [upload, number, claim], 3) == (5.0, None)


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.1, pytest.param(3.0, marks=pytest.mark.nightly)])
def test_a_free_rider_that_sends_the_last_change_with_noise_is_named_and_nobody_else(
    noise: float, tmp_path: Path
) -> None:
    rider = {"name": "free_rider", "mode": "delta", "noise": noise, "clients": MALICIOUS}
    found = checked(tmp_path, adversary=rider, record={"rounds": "all"}, **{"method.rounds": 3})
    assert not found.blind_to_copies
    assert [c.client for c in found.contradicted] == MALICIOUS
    finding = judge_subject(Contradicted(found), load_policy("default"))
    assert (
        "Client 2 claims" in finding.summary
        and "the last change of the shared model with noise" in finding.summary
    )


@pytest.mark.nightly
def test_where_models_were_not_recorded_the_limits_name_the_free_rider_with_noise(tmp_path: Path) -> None:
    found = checked(tmp_path, adversary={"name": "free_rider", "mode": "delta", "clients": MALICIOUS})
    assert "two rounds in a row" in found.blind_to_copies
    finding = judge_subject(Contradicted(found), load_policy("default"))
    assert "A free rider that sends the shared model's last change with noise" in finding.does_not_show
