"""An audit of four times as many clients is at most little more than four times the work, in every function.

Counted, not timed: calls of every function, phase by phase.
"""

import cProfile
import pstats
from pathlib import Path

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate

MOST = 5.2  # times the calls for four times the clients: what sorts takes a little more
FEW = 3_000  # calls that are not looked at
PHASES = ("simulate", "attack", "account", "score", "report")
TINY = "tests.audit.tiny"


def config(clients: int) -> Config:
    settings = {
        "federation": {
            "dataset": {"name": f"{TINY}:TinyImages", "examples": 3 * clients},
            "clients": clients,
            "partition": f"{TINY}:Thirds",
            "model": {"name": f"{TINY}:Linear", "width": 5},
            "availability": {"name": "bernoulli", "p": 0.9},
            "holdout": {"auxiliary": 0.1, "reference": 0.1},
        },
        "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1},
        "protections": [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0}],
        "noise_audit": False,
        "attacks": ["label_counts_from_update"],
        "replay": {"updates": [[1, 1, 1]], "clients": 2},
        "report": ["json", "html"],
        "workers": 0,
    }
    return validate(Config, settings, "test")


def count_calls(folder: Path, clients: int) -> dict[str, int]:
    """Phase and function -> calls."""
    run, found = RunDir.create(folder), dict[str, int]()
    for phase in PHASES:
        watch = cProfile.Profile()
        watch.runcall(execute, run, config(clients), (phase,), lambda *_: None, skip_finished=True)
        for (file, line, name), (_, calls, *_) in pstats.Stats(watch).stats.items():  # type: ignore[attr-defined]
            found[f"{phase}: {Path(file).name}:{line} {name}"] = calls
    return found


@pytest.mark.nightly
def test_an_audit_grows_as_its_clients_do(tmp_path: Path) -> None:
    count_calls(tmp_path / "first", 5)  # imports of modules
    few, many = count_calls(tmp_path / "few", 30), count_calls(tmp_path / "many", 120)
    assert {n: (few.get(n, 0), c) for n, c in many.items() if c > FEW and c > MOST * few.get(n, 0)} == {}
