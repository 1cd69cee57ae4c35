"""The table of label inference: every method has a row, and numbers are those of the evidence."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.strength.label_inference_table import BASE, HEADER, METHODS, cells, main, measure, overrides_of
from fedaudit.audit.settings.overrides import overridden
from fedaudit.fl.runtime.errors import UserError

TINY = {
    "federation": {
        "dataset": "digits",
        "model": {"name": "mlp", "hidden": [16]},
        "clients": 6,
        "partition": {"name": "n_class", "classes_per_client": 2, "examples_per_client": None},
        "holdout": {"auxiliary": 0.3, "reference": 0.0},
        "limit": [None, 100],
    },
    "workers": 0,
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_valid_config(method: str) -> None:
    overridden(BASE, overrides_of(method, 4, 7), where=method)


@pytest.mark.nightly
def test_rows_are_what_the_attacks_found(tmp_path: Path) -> None:
    text = measure(["FedAvg", "FedLC", "FedBABU"], 1, 7, tmp_path, TINY)
    assert (tmp_path / "table.md").read_text() == text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines]
    assert tuple(head) == HEADER
    assert [r[0] for r in rows] == ["FedAvg", "FedLC", "FedBABU"]
    folder = tmp_path / "fedlc-seed-7-r1" / "evidence"
    found = json.loads(next(folder.glob("00-*.json")).read_text())
    exact = next(
        e
        for e in found["evidence"]
        if e["condition"] == {"rule": "bias"}
        and e["measure"] == "label_set_exact_match"
        and e["control"] == "none"
    )
    assert rows[1][1].startswith(f"{exact['value']:.2f} [") and exact["value"] == 1
    assert "last layer" in rows[2][1]  # FedBABU does not send it


def test_the_best_blind_guess_is_in_brackets() -> None:
    def evidence(measure: str, condition: dict[str, str], value: float) -> dict[str, object]:
        return {
            "measure": measure,
            "condition": condition,
            "value": value,
            "control": "none",
            "interval": [0.1, 0.9],
            "trials": 20,
            "higher_is_worse": True,
            "baselines": [{"value": 0.2}, {"value": 0.3}],
        }

    found = [
        evidence("label_set_exact_match", {"rule": "bias"}, 0.5),
        evidence("label_set_f1", {"rule": "bias"}, 0.6),
    ]
    row = cells("X", {"status": "ran", "evidence": found})
    assert row[1] == "0.50 [0.10, 0.90] (0.30)" and row[2] == "–" and row[4].startswith("0.60")
    assert len(row) == len(HEADER)


def test_unknown_methods_are_refused() -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--methods", "FedAgv"])
    assert result.exit_code == 2 and "did you mean 'FedAvg'?" in result.output
    with pytest.raises(UserError, match="--rounds must be >= 1"):
        measure([], 0, 7, Path("unused"), TINY)
