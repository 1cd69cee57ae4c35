"""The ledger and the folder of an honest run pass the verifier, whatever the method."""

import json
from pathlib import Path

import pytest

from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.attestation.completeness import check_files, check_rounds, check_simulation
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases import simulate
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.ledger import read
from fedaudit.fl.recording.recorder import manifest
from tests.fl.test_all_methods import COMMON, adapters

METHODS = catalog.names("methods")


def honest(method: str, folder: Path, rounds: str = "last") -> tuple[RunDir, SimulatedConfig]:
    """A small federation of this method in which answers are lost and rounds stay empty."""
    known = catalog.settings("methods", method, {}, "method")
    settings = {k: v for k, v in COMMON.items() if k in known}
    text = {
        "federation": {
            "dataset": "digits",
            "limit": [300, 50],
            "clients": 4,
            "availability": {"name": "bernoulli", "p": 0.7},
            "empty_round": "skip",
            "model": "small_cnn",
            **adapters(method, "fc"),
            "failures": {"reply_loss": 0.2},
            "holdout": {"server": 0.1},
        },
        "method": {"name": method, **settings},
        "record": rounds,
        "workers": 0,
    }
    run, config = RunDir(folder), validate(SimulatedConfig, text, "config")
    simulate.run(run, config, lambda *_: None)
    return run, config


def list_problems(run: RunDir, config: SimulatedConfig) -> list[str]:
    lines, history = list(manifest(run.artifacts)), run.history()
    case = open_case(run, config)
    return [
        *check_rounds(run.path, int(getattr(case.training, "rounds", 0)), lines, history),
        *check_simulation(run.path, case.card, config.evaluate_every, config.record, lines, history),
        *check_files(run.path, lines),
    ]


@pytest.mark.sample(5)
@pytest.mark.dear("fedmd")
@pytest.mark.parametrize("method", METHODS)
def test_the_ledger_of_an_honest_run_has_no_issue(method: str, tmp_path: Path) -> None:
    run, config = honest(method, tmp_path)
    found = verify(open_case(run, config), read(run.ledger), manifest(run.artifacts))
    assert found.issues == (), json.dumps([str(i) for i in found.issues][:3], indent=1)


@pytest.mark.sample(5)
@pytest.mark.dear("fedmd")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_missing_from_the_folder_of_an_honest_run(method: str, tmp_path: Path) -> None:
    assert list_problems(*honest(method, tmp_path, "all")) == []


def test_nothing_is_missing_where_relays_have_more_than_one_kind_of_reader(tmp_path: Path) -> None:
    """GANDALF: a mediator reads the first message of a cycle, and no generator's round has a model to score."""
    run, config = honest("gandalf", tmp_path, "all")
    lines = list(manifest(run.artifacts))
    assert (
        len({tuple(li["seen_by"]) for li in lines if li.get("traffic") == "gan_G" and li["channel"] == "relay"})
        > 1
    )
    assert {"accuracy" in h for h in run.history()} == {True, False}
    assert list_problems(run, config) == []
