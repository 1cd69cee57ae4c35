"""The ledger of an honest run passes the verifier, whatever the method."""

import json
from pathlib import Path

import pytest

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases import simulate
from fedaudit.audit.phases.account import verify_run
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.ledger import read
from tests.fl.test_all_methods import COMMON, adapters

METHODS = catalog.names("methods")


def honest(method: str, folder: Path) -> tuple[RunDir, Config]:
    """A small federation of this method in which answers are lost and rounds stay empty."""
    known = catalog.settings("methods", method, {}, "method")
    settings = {k: v for k, v in COMMON.items() if k in known}
    text = {
        "federation": {
            "dataset": "digits",
            "train_limit": 300,
            "test_limit": 50,
            "clients": 4,
            "availability": {"name": "bernoulli", "p": 0.7},
            "empty_round": "skip",
            "model": "small_cnn",
            **adapters(method, "fc"),
            "reply_loss": 0.2,
            "holdout": {"server": 0.1},
        },
        "method": {"name": method, **settings},
        "record": {"rounds": "last"},
        "workers": 0,
    }
    run, config = RunDir(folder), validate(Config, text, "config")
    simulate.run(run, config, lambda *_: None)
    return run, config


@pytest.mark.sample(5)
@pytest.mark.dear("fedmd")
@pytest.mark.parametrize("method", METHODS)
def test_the_ledger_of_an_honest_run_has_no_issue(method: str, tmp_path: Path) -> None:
    run, config = honest(method, tmp_path)
    found = verify_run(run, open_case(run, config), read(run.ledger))
    assert found.issues == (), json.dumps([str(i) for i in found.issues][:3], indent=1)
