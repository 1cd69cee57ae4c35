"""fedaudit compare: what differs, side by side; folders that are no finished runs are refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.compare import compare, flat, select_differences
from fedaudit.audit.cli.main import app
from fedaudit.audit.phases.execute import execute
from fedaudit.fl.runtime.errors import UserError
from tests.audit.importing.theirs import brought

TEXT = """
federation:
  dataset: "tests.audit.tiny:TinyImages"
  clients: 4
  model: {name: "tests.audit.tiny:Linear", width: 5}
  holdout: {auxiliary: 0.3, reference: 0.3}
method: {name: rebafl, rounds: 1, local_epochs: 1}
workers: 0
attacks: [count_recovery]
report: [json]
"""
HIDDEN = TEXT.replace("rounds: 1", "rounds: 2") + "protections: [secure_aggregation]\n"


def fedaudit(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(w) for w in words])
    return found.exit_code, found.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    for name, text in (("plain", TEXT), ("hidden", HIDDEN)):
        (folder / f"{name}.yaml").write_text(text)
        code, output = fedaudit("run", folder / f"{name}.yaml", "--out", folder / name)
        assert code in (1, 3), output
    return folder


def test_verdicts_come_first_settings_that_differ_last_and_results_stand_side_by_side(runs: Path) -> None:
    header, rows = compare([runs / "plain", runs / "hidden"], trust=True)
    assert header == ["", "plain", "hidden", "intervals"]
    found = {row[0]: row[1:] for row in rows}
    assert next(iter(found)) == "verdict" and list(found)[-1].startswith("protections")
    assert found["method.rounds"] == ["1", "2", ""]
    assert found["protections[0].name"] == ["-", "secure_aggregation", ""]
    assert not {"seed", "method.lr", "federation.clients"} & set(found)  # equal in both
    assert found["count_recovery"][:2] == ["Medium", "None"]  # small groups, and nothing of their sum
    assert "accuracy final" in found and "worst finding" in found
    exact = next(v for k, v in found.items() if "count exact match" in k)
    assert exact[0].startswith("100") and exact[1] == "-"


def test_a_run_beside_itself_differs_in_nothing(runs: Path) -> None:
    header, rows = compare([runs / "plain", runs / "plain"], trust=True)
    assert header[1:] == [str(runs / "plain"), str(runs / "plain"), "intervals"]
    assert {row[3] for row in rows} == {"", "overlap"}
    assert all(row[1] == row[2] for row in rows) and rows[0][0] == "verdict"


def test_a_screen_has_the_verdict_and_what_differs(runs: Path) -> None:
    header, rows = select_differences(*compare([runs / "plain", runs / "hidden"], trust=True))
    names = [row[0] for row in rows]
    assert header == ["", "plain", "hidden"] and names[0] == "verdict" and len(rows) <= 18
    assert {"count_recovery", "method.rounds"} <= set(names) and "policy" not in names
    assert all(row[1] != row[2] for row in rows[1:])
    assert not [name for name in names if name.startswith(" ")]  # no estimate lies apart
    assert [r[0] for r in select_differences(*compare([runs / "plain"] * 2, trust=True))[1]] == ["verdict"]


def test_an_estimate_whose_interval_lies_apart_is_shown() -> None:
    rows = [["verdict", "a", "a", ""], ["  auc", "60 %", "90 %", "apart"], ["  f1", "1 %", "2 %", "overlap"]]
    assert select_differences(["", "a", "b", "intervals"], rows)[1] == [
        ["verdict", "a", "a"],
        ["  auc", "60 %", "90 %"],
    ]


def test_the_command_prints_one_line_a_row(runs: Path) -> None:
    code, output = fedaudit("compare", runs / "plain", runs / "hidden", "--trust-plugins")
    assert code == 0 and "method.rounds\t1\t2\t" in output.splitlines()


def test_what_is_no_finished_run_is_refused_in_one_sentence_with_a_hint(runs: Path) -> None:
    fedaudit("run", runs / "plain.yaml", "--phase", "simulate", "--out", runs / "half")
    for folder, says in (
        (runs / "none", "no run folder"),
        (runs, "not a run folder"),
        (runs / "half", "not a finished run: its attack phase"),
    ):
        code, output = fedaudit("compare", runs / "plain", folder)
        assert code == 2 and says in output and "hint" in output and "Traceback" not in output
    with pytest.raises(UserError, match="at least two"):
        compare([runs / "plain"])


def test_nested_settings_become_dotted_keys() -> None:
    value = {"a": {"b": 1, "c": []}, "d": [{"e": 2}], "f": [1, 2], "g": {}}
    assert flat(value) == {"a.b": "1", "a.c": "[]", "d[0].e": "2", "f": "[1, 2]", "g": "{}"}


def test_a_recorded_run_is_compared_with_a_simulated_one(runs: Path, tmp_path: Path) -> None:
    run, config, _ = brought(tmp_path, None)
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    header, rows = compare([runs / "plain", run.path], trust=True)
    assert header[1:3] == ["plain", "run"] and any(row[0] == "subject.title" and row[1] == "-" for row in rows)
