"""Small federations for the audit of noise: six clients of forty digits, four rounds."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaudit.audit.accounting.status import BoundCheck
from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.account import read_bounds
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.phases import account, simulate
from fedaudit.audit.settings.config import Config
from fedaudit.fl.ledger import read
from fedaudit.fl.recording.recorder import manifest
from fedaudit.reports.bound import PrivacyBound

WRONG = "tests.audit.noise_audit.wrong_systems:"
GAUSSIAN = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 2.0}
CENTRAL = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 2.0}
SGD = {"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10}
BASE: Mapping[str, Any] = {
    "seed": 7,
    "method": {"name": "fedavg", "rounds": 4, "local_epochs": 1, "batch_size": 20, "weighting": "uniform"},
    "federation": {
        "dataset": "digits",
        "clients": 6,
        "partition": "iid",
        "model": "logreg",
        "limit": 240,
        "empty_round": "skip",
    },
}


def make_case(**changes: Any) -> SimulatedCase:
    """The base with groups of its config changed key by key."""
    config = {**BASE, **changes}
    for name in ("method", "federation"):
        config[name] = {**BASE[name], **changes.get(name, {})}
    return SimulatedCase(Config.model_validate(config))


def check(observer: str, unit: str = "client", **changes: Any) -> BoundCheck:
    """What the replay says of one bound."""
    return next(c for c in audit_bounds(make_case(**changes)) if (c.observer, c.unit) == (observer, unit))


def judge(observer: str, unit: str = "client", **changes: Any) -> PrivacyBound:
    """The bound of a run that was simulated and accounted for, with all that is known of it."""
    config = make_case(**{"accountants": [{"name": "auto", "cross_check": False}], **changes}).config
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        simulate.run(run, config, lambda *_: None)
        account.run(run, config, lambda *_: None)
        verified = verify(open_case(run, config), read(run.ledger), manifest(run.artifacts))
        found = read_bounds(EvidenceFolder(run.path), verified, {})
    return next(b for b in found if (b.observer, b.unit) == (observer, unit))
