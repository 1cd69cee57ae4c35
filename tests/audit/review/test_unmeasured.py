"""An attack that comes to its end and measures nothing says so, and the run that it is part of is whole."""

import json
from pathlib import Path

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.attack import UNMEASURED
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.review.review import review
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate


def test_a_run_whose_data_have_nothing_that_an_attack_looks_for_is_whole(tmp_path: Path) -> None:
    settings = {
        "federation": {
            "dataset": {"name": "notes", "patients": 16, "vocabulary": 500, "length": 16},
            "clients": 2,
            "partition": {"name": "people", "each": 2},
            "availability": "full",
            "model": {"name": "tiny_gpt", "dim": 16, "layers": 1, "heads": 2, "task": "lm"},
            "adapters": {"rank": 2, "targets": ["q"]},
        },
        "method": {"name": "fedlora", "rounds": 1, "local_epochs": 1, "batch_size": 4, "lr": 0.1},
        "attacks": ["canary_exposure", "example_numbers"],
        "noise_audit": False,
        "report": [],
        "workers": 0,
    }
    run = RunDir.create(tmp_path / "run")
    config = validate(Config, settings, "config")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    file = json.loads(next(run.evidence.glob("*canary_exposure.json")).read_text())
    assert (file["status"], file["reason"]) == ("not_applicable", UNMEASURED)  # no secret was planted
    made = review(run, run.load_config())  # raises where the record is not whole
    [finding] = [f for f in made.result.findings if f.id == "canary_exposure"]
    assert (str(finding.outcome), finding.reason) == ("not_applicable", UNMEASURED)
