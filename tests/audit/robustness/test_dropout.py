"""Absence: which runs it needs, known answers, refusals, and a tiny one from config to report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.robustness.dropout import DropoutRun, find_holders, measure_dropout, plan_dropout
from fedaudit.audit.robustness.dropout_findings import list_dropout_findings
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.availability.bernoulli import Bernoulli, Leaving
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.reports.result import AuditResult, Severity
from tests.audit.robustness.test_matrix import TEXT

POLICY = load_policy("default")
HALF = {"name": "bernoulli", "p": 0.5}
ABSENCE = {"methods": ["rebafl"], "availabilities": [HALF], "seeds": [7, 8, 9]}


def absence(**changes: Any) -> Matrix:
    return Matrix.model_validate(ABSENCE | changes)


def leaving(**settings: int) -> list[dict[str, Any]]:
    return [HALF, {"name": "leaving", **settings}]


def config(**changes: Any) -> SimulatedConfig:
    plain = yaml.safe_load(TEXT)
    return validate(Config, plain | {"matrix": ABSENCE | changes}, "c.yaml").require_simulated()


def histories(
    of: dict[tuple[str, float], list[float]], rounds: int = 6
) -> dict[DropoutRun, list[dict[str, Any]]]:
    """(method, p) -> accuracy by seed, the same in all rounds."""
    return {
        DropoutRun(method, seed, p=p): [{"accuracy": a, "class_accuracy": [a - 0.1, a + 0.1]}] * rounds
        for (method, p), by_seed in of.items()
        for seed, a in zip((7, 8, 9), by_seed, strict=True)
    }


def test_fedavg_everybody_answering_and_every_seed_are_always_there() -> None:
    wanted = plan_dropout(absence(), config().method, find_holders(config()))
    assert [p.folder for p in wanted if p.seed == 8] == [
        f"{m}/p{p}-s1/seed-8" for m in ("fedavg", "rebafl") for p in ("0.5", "1")
    ]
    assert {o["method"]["rounds"] for o in wanted.values()} == {2}  # the audit's own, of every method


def test_drops_and_comparisons_are_paired_by_seed() -> None:
    made = measure_dropout(
        absence(),
        histories(
            {
                ("fedavg", 1.0): [0.90, 0.80, 0.70],
                ("fedavg", 0.5): [0.80, 0.70, 0.60],
                ("rebafl", 1.0): [0.90, 0.80, 0.70],
                ("rebafl", 0.5): [0.89, 0.79, 0.69],
            }
        ),
        [],
        [],
    )
    fedavg, rebafl = made.beside
    # seeds differ by 20 points and drops by none: unpaired, the interval would hold 0
    assert fedavg.drop.value == pytest.approx(0.1) and fedavg.drop.interval == pytest.approx((0.1, 0.1))
    assert rebafl.drop.value == pytest.approx(0.01) and fedavg.over_fedavg is None
    assert rebafl.over_fedavg is not None and rebafl.over_fedavg.interval == pytest.approx((0.09, 0.09))
    found = {f.id: f for f in map(POLICY.rate, list_dropout_findings(made, 0.05))}
    assert found["absence-fedavg-answering"].severity is Severity.MEDIUM
    assert found["absence-rebafl-answering"].severity is Severity.LOW  # 1 point, in every seed
    title = "fedavg: clients that do not answer make the model wrong"
    assert found["absence-fedavg-answering"].title == title
    assert "points more (9.0 to 9.0) than fedavg." in found["absence-rebafl-answering"].summary


def test_seeds_that_disagree_and_one_seed_alone_decide_nothing() -> None:
    apart = {("fedavg", 1.0): [0.9, 0.9, 0.9], ("fedavg", 0.5): [0.5, 0.9, 0.95]}
    [subject] = list_dropout_findings(measure_dropout(absence(methods=[]), histories(apart), [], []), 0.05)
    # a mean loss of 12 points whose sign the seeds leave open is not "none"
    finding = POLICY.rate(subject)
    assert finding.severity is Severity.NONE and "were not seen to make the model wrong" in finding.title
    assert finding.reason.startswith("The seeds disagree: the loss may be anything from ")
    single = {k: v for k, v in histories(apart).items() if k.seed == 7}
    [subject] = list_dropout_findings(measure_dropout(absence(methods=[], seeds=[7]), single, [], []), 0.05)
    assert POLICY.rate(subject).reason == "One seed has no interval over seeds: run three."


def test_rounds_until_a_class_is_lost_and_is_there_again_are_counted_from_leaving_and_from_returning() -> None:
    own = absence(methods=[], availabilities=leaving(label=1, leave=3, back=6))
    recall = [0.8, 0.8, 0.8, 0.4, 0.08, 0.0, 0.5, 0.73, 0.8]
    run = [{"accuracy": 0.5, "class_accuracy": [0.5, r]} for r in recall]
    never = [{"accuracy": 0.5, "class_accuracy": [0.5, r]} for r in [0.8] * 3 + [0.5] * 6]
    runs = {DropoutRun("fedavg", s, holders=(1,)): h for s, h in ((7, run), (8, never), (9, run))}
    [found] = measure_dropout(own, runs, ["a", "b"], []).returns
    assert (found.lost, found.regained) == ([2, None, 2], [2, None, 2])
    assert found.drop.value == pytest.approx((0.64 + 0.3 + 0.64) / 3)
    gone = absence(methods=[], availabilities=leaving(label=1, leave=3, back=30))
    [found] = measure_dropout(gone, runs, ["a", "b"], []).returns
    assert found.regained == [None, None, None]
    assert found.drop.value == pytest.approx((2 * (0.8 - 2.11 / 5) + 0.3) / 3)


@pytest.mark.parametrize(
    ("least", "severity"),
    [(0.0, Severity.NONE), (0.1, Severity.LOW), (0.3, Severity.HIGH), (0.6, Severity.CRITICAL)],
)
def test_a_class_that_is_forgotten_is_rated_as_one_that_is_attacked(least: float, severity: Severity) -> None:
    own = absence(methods=[], availabilities=leaving(label=1, leave=3, back=6))
    runs = {
        DropoutRun("fedavg", s, holders=(1,)): [
            {"accuracy": 0.5, "class_accuracy": [0.5, r]} for r in [0.8] * 3 + [0.8 - least] * 3
        ]
        for s in (7, 8, 9)
    }
    [subject] = list_dropout_findings(measure_dropout(own, runs, ["a", "b"], []), 0.05)
    found = POLICY.rate(subject)
    assert found.severity is severity
    forgets = "forgets" if least else "was not seen to forget"
    assert found.title == f"fedavg: the model {forgets} class b while its only holders are away"


def test_who_leaves_is_away_and_all_others_answer_as_without() -> None:
    rule, without = (
        Leaving(Leaving.Config(p=0.5, clients=(0, 2), leave=3, back=5)),
        Bernoulli(Bernoulli.Config(p=0.5)),
    )
    for t in range(8):
        found, whole = (a.draw(t, range(6), Streams(7)).answering for a in (rule, without))
        assert found == (tuple(k for k in whole if k not in (0, 2)) if t in (3, 4) else whole)
    assert rule.sampling(None, 6).sampling == "unknown"


def test_the_holders_of_a_class_leave_where_it_is_named() -> None:
    counts = np.array([[3, 0], [1, 2], [4, 0], [0, 1], [5, 0]])
    named = Leaving(Leaving.Config(label=1, leave=3, back=5)).among(lambda: counts)
    assert isinstance(named, Leaving) and named.config.clients == (1, 3)
    assert named.config == Leaving.Config(clients=(1, 3), leave=3, back=5)
    numbered = Leaving(Leaving.Config(clients=(0,), leave=3, back=5))
    assert numbered.among(lambda: counts) is numbered


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (leaving(label=0, leave=1, back=2), "5 of 5 clients hold class 0"),
        (leaving(label=7, leave=1, back=2), "must be below 2"),
        (leaving(label=0, leave=3, back=3), "must be after leave"),
        (leaving(leave=1, back=2), "leaving without a label"),
        (2 * leaving(label=0, leave=1, back=2), "leaving more than once"),
        (["clustered"], r"availabilities\[0\] is Clustered availability, and nobody is malicious"),
        ([{"name": "persistent", "p": p, "period": s} for p, s in ((0.5, 2), (0.3, 3))], "several p"),
    ],
)
def test_clients_that_cannot_be_absent_so_are_refused(asked: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        made = config(availabilities=asked)
        plan_dropout(made.absence or absence(), made.method, find_holders(made))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"availabilities": []}, "matrix must have adversaries or availabilities"),
        ({"aggregators": ["median"]}, "matrix.aggregators stands beside no adversaries"),
    ],
)
def test_a_matrix_of_nothing_and_rules_without_attacks_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        config(**changes)


def test_seeds_are_the_audits_own_where_none_are_named() -> None:
    made = config(seeds=[])
    assert made.absence is not None and made.absence.seeds == (7,) and made.attack_matrix is None


@pytest.mark.nightly
def test_a_tiny_absence_from_config_to_report(tmp_path: Path) -> None:
    plain = yaml.safe_load(TEXT)
    plain["matrix"] = {"availabilities": [HALF, {"name": "persistent", "period": 2}], "seeds": [7, 8]}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    out = tmp_path / "out"
    found = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(out)])
    assert found.exit_code == 3, found.output  # absence is no attack, and nothing was attacked
    result = AuditResult.model_validate_json((out / "audit.json").read_bytes())
    assert result.absence is not None and not result.absence.not_run
    assert {b.axis for b in result.absence.beside} == {"answering", "persistence"}
    assert [f.id for f in result.findings if f.id.startswith("absence-")]
    assert "Clients that are absent" in (out / "report.html").read_text()


@pytest.mark.parametrize("leave", [0, 4, 8])
def test_who_leaves_before_the_first_round_or_after_the_last_is_refused_before_anything_runs(leave: int) -> None:
    made = Config.model_validate(
        {
            "federation": {
                "dataset": "digits",
                "clients": 10,
                "partition": {"name": "n_class_exhaustive", "classes_per_client": 2},
            },
            "method": {"name": "fedavg", "rounds": 4},
            "matrix": {"availabilities": leaving(label=3, leave=leave, back=9)},
        }
    )
    with pytest.raises(UserError, match=f"clients leave in round {leave} of 4"):
        find_holders(made)
