"""Phases in order: each runs once for its settings, and none reads what is outdated."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import PHASES, read_phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult
from tests.audit.tiny import TEXT

NAMES = [p.name for p in PHASES]
EXTRA = "workers: 0\nattacks: []\nreport: [json]\nrecord: all\n"


class Seen:
    """Progress reports, as (phase, done, total)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, phase: str, done: int, total: int) -> None:
        self.calls.append((phase, done, total))


def go(folder: Path, extra: str = EXTRA, names: list[str] = NAMES, again: bool = False) -> Seen:
    path = folder / "c.yaml"
    path.write_text(TEXT + extra)
    seen = Seen()
    run = RunDir.create(folder / "run")
    execute(run, load(path), names, seen, skip_finished=not again)
    return seen


def times(folder: Path) -> dict[str, int]:
    run = RunDir.open(folder / "run")
    files = {"simulate": run.metrics, "account": run.evidence / "budgets.json", "score": run.audit}
    return {name: os.stat(p).st_mtime_ns for name, p in files.items()}


def test_a_whole_audit_of_a_users_own_plugins(tmp_path: Path) -> None:
    seen = go(tmp_path)
    told = [name for name in NAMES if name != "matrix"]  # the config has none, and nothing is said of it
    assert list(dict.fromkeys(phase for phase, _, _ in seen.calls)) == told
    run = RunDir.open(tmp_path / "run")
    result = AuditResult.model_validate_json(run.audit.read_bytes())
    assert result.scope.clients == 4 and result.scope.rounds == 2
    assert {b.observer for b in result.bounds} == {"server", "another client", "public"}
    assert result.reproduction.config == run.config.read_text()
    record = read_phases(run.path)
    assert list(record) == NAMES and all(b["seconds"] >= 0 for b in record.values())
    assert (run.path / "report.json").exists()


def test_a_finished_phase_is_not_run_again(tmp_path: Path) -> None:
    go(tmp_path)
    before = times(tmp_path)
    go(tmp_path)
    assert times(tmp_path) == before
    go(tmp_path, names=["score"], again=True)
    after = times(tmp_path)
    assert after["score"] > before["score"] and after["simulate"] == before["simulate"]


def test_a_changed_setting_reruns_its_phase_and_those_that_read_it(tmp_path: Path) -> None:
    go(tmp_path)
    before = times(tmp_path)
    go(tmp_path, EXTRA + "delta: 0.001\n")
    after = times(tmp_path)
    assert after["simulate"] == before["simulate"]
    assert after["account"] > before["account"] and after["score"] > before["score"]
    budgets = json.loads((tmp_path / "run" / "evidence" / "budgets.json").read_text())
    assert {b["delta"] for b in budgets} == {0.001}


def test_outdated_evidence_is_not_scored(tmp_path: Path) -> None:
    go(tmp_path)
    with pytest.raises(UserError, match=r"account ran with delta: 1e-05, the config says 0.5"):
        go(tmp_path, EXTRA + "delta: 0.5\n", names=["score"], again=True)


def test_a_rerun_phase_makes_later_ones_unfinished(tmp_path: Path) -> None:
    go(tmp_path)
    go(tmp_path, names=["account"], again=True)
    assert list(read_phases(tmp_path / "run")) == ["simulate", "attack", "account", "matrix"]
    with pytest.raises(UserError, match="report needs a finished score phase"):
        go(tmp_path, names=["report"], again=True)


def test_a_killed_simulation_continues_and_the_first_start_counts(tmp_path: Path) -> None:
    go(tmp_path, names=["simulate"])
    run = RunDir.open(tmp_path / "run")
    record = read_phases(run.path)
    record["simulate"] |= {"seconds": None, "started": "2020-01-01T00:00:00+00:00"}
    run.write_json(run.phases, record)
    with pytest.raises(UserError, match="attack needs a finished simulate phase"):
        go(tmp_path, names=["attack"])
    go(tmp_path)
    assert read_phases(run.path)["simulate"]["started"] == "2020-01-01T00:00:00+00:00"


def test_run_prints_the_headline_and_the_report(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT + EXTRA)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["run", str(path), "--out", str(out), "--workers", "0"])
    assert result.exit_code == 3, result.output  # it names no attack
    assert "CANNOT TELL It could be all 36 people: 13 of 13 required answers are missing." in result.stdout
    assert f"report: {out}/report.json" in result.stdout
    # off a terminal a line a step
    done = [line for line in result.stderr.splitlines() if line.endswith(": done")]
    assert done == [f"{p}: done" for p in ("simulate", "attack", "account", "score", "report")]
    (tmp_path / "terms.yaml").write_text("fail_on: low\n")
    words = ["check", str(out), "--trust-plugins", "--terms", str(tmp_path / "terms.yaml")]
    gate = CliRunner().invoke(app, words)
    assert gate.exit_code == 3, gate.output  # no epsilon bounds the loss, which is no finding
    gate = CliRunner().invoke(app, ["check", str(out), "--trust-plugins"])
    assert gate.exit_code == 3 and "0 of 17 questions answered" in gate.stdout
