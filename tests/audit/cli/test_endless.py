"""A run that would never end is not started unasked; one that was begun goes on."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.cli.preflight import Forecast
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime.errors import UserError

RUNNER = CliRunner()
CONFIG = """
federation: {{dataset: digits, limit: [100, 20], clients: 3, model: logreg}}
method: {{name: fedavg, rounds: {rounds}, local_epochs: 100000}}
attacks: [example_numbers]
workers: 0
device: cpu
"""


def write(folder: Path, rounds: int) -> Path:
    path = folder / "c.yaml"
    path.write_text(CONFIG.format(rounds=rounds))
    return path


def forecast(folder: Path, rounds: int) -> Forecast:
    return Forecast(load(write(folder, rounds)).require_simulated())


@pytest.mark.parametrize("command", ["run", "run --phase simulate"])
def test_a_training_of_weeks_is_not_started_unasked(command: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = RUNNER.invoke(app, [*command.split(), str(write(tmp_path, 900_000)), "--out", str(out)])
    assert done.exit_code == 2 and "are allowed" in done.stderr, done.output
    assert "FEDAUDIT_SECONDS=" in done.stderr and not out.exists()


def test_steps_of_a_protection_count_in_the_place_of_epochs(tmp_path: Path) -> None:
    protections = "protections: [{{name: dp_sgd, steps: {}, sample_rate: 1}}]\n"
    path = write(tmp_path, 1)
    text = path.read_text()
    for steps, is_refused in ((1_000_000_000, True), (10, False)):
        path.write_text(text + protections.format(steps))
        with pytest.raises(UserError, match="are allowed") if is_refused else nullcontext():
            Forecast(load(path).require_simulated()).refuse_endless(86_400)


def test_more_seconds_allow_it_and_a_short_run_is_not_asked_about(tmp_path: Path) -> None:
    forecast(tmp_path, 900_000).refuse_endless(1e13)
    forecast(tmp_path, 1).refuse_endless(86_400)
    with pytest.raises(UserError, match="1 s are allowed"):
        forecast(tmp_path, 1).refuse_endless(0)


def test_the_estimate_moves_no_random_number(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    forecast(tmp_path, 1).refuse_endless(86_400)
    assert torch.equal(before, torch.get_rng_state())
