"""Audits of systems that readers of the documentation wrote (data_beside_noise.yaml and those beside it).

python -m tests.audit.noise_audit.unseen [NAME ...] prints what is said of each, and which are missed.
"""

import copy
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.status import combine_status
from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.phases import simulate
from fedaudit.audit.phases.account import check_bounds
from fedaudit.audit.settings.config import Config
from fedaudit.fl.ledger import read
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.bound import PrivacyBound, Status
from tests.audit.noise_audit.systems import BASE

NAMES = ("data_beside_noise.yaml", "jobs_and_relays.yaml", "rules_of_sums.yaml", "state_outside_plays.yaml")
FILES = [Path(__file__).with_name(name) for name in NAMES]


class System(NamedTuple):
    """One entry of a file."""

    name: str
    wrong: bool
    towards: str  # who learns more than the bound says, or one for whom it holds
    unit: str
    config: dict[str, Any]


def read_systems() -> list[System]:
    return [System(**entry) for file in FILES for entry in read_yaml(file)]


def audit_system(system: System) -> list[PrivacyBound]:
    """The bounds that the system is about, with what the verifier and the replay say of them."""
    merged: dict[str, Any] = copy.deepcopy(dict(BASE))
    for key, value in system.config.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    config = Config.model_validate({**merged, "workers": 0, "device": "cpu"})
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        simulate.run(run, config, lambda *_: None)
        case, releases = open_case(run, config), read(run.ledger)
        assert isinstance(case, SimulatedCase)
        verified = verify(case, releases, manifest(run.artifacts))
        accounted = budgets(releases, config.accountants, config.delta, verified)
        checks = check_bounds(partial(audit_bounds, case, releases), releases, is_ours=True)
    found = combine_status(accounted, verified, checks, ())
    return [b for b in found if b.observer == system.towards and b.unit == system.unit]


def is_noticed(bounds: list[PrivacyBound]) -> bool:
    """Whether no bound is left that somebody would believe."""
    return bool(bounds) and all(b.status in (Status.REFUTED, Status.NONE) for b in bounds)


def main() -> None:
    wanted = sys.argv[1:]
    for system in read_systems():
        if wanted and system.name not in wanted:
            continue
        try:
            bounds = audit_system(system)
        except Exception as error:  # a system that does not run is not audited
            print(f"{system.name}: ENDED {type(error).__name__}: {error}", flush=True)
            continue
        noticed = is_noticed(bounds)
        verdict = "named" if system.wrong and noticed else "silent" if not (system.wrong or noticed) else "MISSED"
        if not system.wrong and any(b.status is Status.REFUTED for b in bounds):
            verdict = "FALSE ALARM"
        reasons = [r.sentence for b in bounds[:1] for r in b.reasons if r.source != "noise test"]
        print(
            f"{system.name}: {verdict}: {[str(b.status) for b in bounds]} {' | '.join(reasons)[:260]}", flush=True
        )


if __name__ == "__main__":
    main()
