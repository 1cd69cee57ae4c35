"""A table of one's own, from the file to page 1: `init --from`, a schema of guesses, and one command."""

import csv
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.settings.config import load
from fedaudit.fl.data.dataset import read_data
from fedaudit.fl.datasets.csv import CSV


def invoke(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.output


def write_clinic(path: Path, rows: int) -> None:
    """Rows with categories, missing values, identifiers and notes; what happens depends on age and blood."""
    rng = np.random.default_rng(3)
    age, ward = rng.integers(18, 99, rows), rng.choice(["A", "B", "C, new", "D"], rows, p=[0.4, 0.3, 0.2, 0.1])
    hemoglobin, crp = np.round(rng.normal(13.5, 1.7, rows), 1), rng.exponential(12, rows)
    risk = 0.04 * (age - 58) - 0.3 * (hemoglobin - 13.5) + 0.02 * crp + rng.normal(0, 0.7, rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["record_id", "age", "sex", "ward", "hemoglobin", "crp", "smoker", "seen_on", "outcome"])
        for i in range(rows):
            out.writerow(
                [
                    f"R{i:05d}",
                    age[i],
                    rng.choice(["f", "m"]),
                    "NA" if rng.random() < 0.03 else ward[i],
                    "" if rng.random() < 0.1 else hemoglobin[i],
                    f"{crp[i]:.4f}",
                    rng.integers(0, 2),
                    f"2026-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
                    "died" if risk[i] > 0.8 else "ill" if risk[i] > -0.2 else "well",
                ]
            )


def test_init_guesses_what_each_column_is_and_marks_each_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_clinic(tmp_path / "clinic.csv", 400)
    code, said = invoke("init", "--from", "clinic.csv")
    assert (
        code == 0 and "clinic.schema.yaml: correct what is guessed" in said and "fedaudit run audit.yaml" in said
    )
    text = (tmp_path / "clinic.schema.yaml").read_text()
    guessed = yaml.safe_load(text)
    assert (guessed["label"], guessed["task"], guessed["owner"]) == ("outcome", "classify", None)
    assert guessed["identifiers"] == ["record_id"] and guessed["left_out"] == ["seen_on"]
    assert guessed["columns"] == {
        "age": {"kind": "number", "step": 1},
        "sex": {"kind": "category", "levels": ["f", "m"]},
        "ward": {"kind": "category", "levels": ["A", "B", "C, new", "D"], "missing": True},
        "hemoglobin": {"kind": "number", "step": 0.1, "missing": True},
        "crp": {"kind": "number"},
        "smoker": {"kind": "category", "levels": ["0", "1"]},
    }
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all("guessed" in line or line.startswith(("columns:", "  - ")) for line in lines)
    dataset = load(tmp_path / "audit.yaml").require_simulated().federation.dataset
    data = read_data(CSV(CSV.Config(**dataset.settings)))
    assert data.classes == ("died", "ill", "well") and data.input_shape == (13,)


@pytest.mark.parametrize(
    ("header", "row", "label", "task", "owner"),
    [
        ("patient,age,score", lambda i: f"p{i // 3},{i % 9},{i * i / 7:.3f}", "score", "regression", "patient"),
        (
            "age,followup_days,died",
            lambda i: f"{i % 9},{i * 3},{i % 2}",
            ["followup_days", "died"],
            "survival",
            None,
        ),
        ("diagnosis;age;dose", lambda i: f"{'ab'[i % 2]};{i % 9};{i}.5", "diagnosis", "classify", None),
    ],
)
def test_what_is_predicted_and_whose_a_row_is_follow_from_names_and_entries(
    header: str, row: object, label: object, task: str, owner: str | None, tmp_path: Path
) -> None:
    assert callable(row)
    (tmp_path / "t.csv").write_text("\n".join([header, *map(row, range(60))]))
    assert invoke("init", str(tmp_path / "a.yaml"), "--from", str(tmp_path / "t.csv"))[0] == 0
    guessed = yaml.safe_load((tmp_path / "t.schema.yaml").read_text())
    assert (guessed["label"], guessed["task"], guessed["owner"]) == (label, task, owner)
    data = read_data(CSV(CSV.Config(path=str(tmp_path / "t.csv"), schema=str(tmp_path / "t.schema.yaml"))))
    assert repr(data.task) == task


def test_init_writes_over_nothing_and_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    write_clinic(tmp_path / "clinic.csv", 40)
    (tmp_path / "clinic.schema.yaml").write_text("mine")
    code, said = invoke("init", str(tmp_path / "a.yaml"), "--from", str(tmp_path / "clinic.csv"))
    assert code == 2 and "is there already" in said and not (tmp_path / "a.yaml").exists()
    assert (tmp_path / "clinic.schema.yaml").read_text() == "mine"
    (tmp_path / "empty.csv").write_text("")
    code, said = invoke("init", str(tmp_path / "a.yaml"), "--from", str(tmp_path / "empty.csv"))
    assert code == 2 and "is empty" in said and "hint:" in said


@pytest.mark.nightly
def test_five_thousand_rows_come_to_page_1_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_clinic(tmp_path / "clinic.csv", 5000)
    assert invoke("init", "--from", "clinic.csv")[0] == 0
    code, said = invoke("run", "audit.yaml")
    assert code in (0, 1, 3), said
    found = read_result(tmp_path / "runs" / "audit")
    assert found.decision is not None and "A table of your own" in found.scope.dataset
    assert found.scope.class_names == [] and not found.scope.is_invented  # whose classes they are is withheld
    states = {q.id: q.state for q in found.questions}
    assert states["membership.public"] == "clear" and states["exact_record.server"] == "clear"
