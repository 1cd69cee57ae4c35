"""Phase 3: add up what the ledger says, per observer and unit, and ask the run itself whether it is true.

Leaves evidence/ledger.json, evidence/budgets.json, evidence/replay.json and evidence/noise_audits.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.child import keep
from fedaudit.audit.accounting.status import BoundCheck, decline
from fedaudit.audit.accounting.verify import DECLARED, Verified, verify
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.noise_tests import audit_noise, record_tests
from fedaudit.audit.noise_audit.recorded import run_recorded_tests
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.phases.evidence import BUDGETS, LEDGER, NOISE_AUDITS, REPLAY
from fedaudit.audit.settings.config import Config
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.recording.recorder import MANIFEST, manifest
from fedaudit.fl.recording.recorder import read as read_messages
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import NoiseAuditRecord

Progress = Callable[[str, int, int], None]


@keep()
def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Bounds from every accountant the config names, and lower bounds by experiment."""
    progress("account", 0, 3)
    releases = read(run.ledger)
    case = open_case(run, config)
    for name, found in compute_accounts(run, config, case, releases).items():
        run.write_json(run.evidence / name, found)
    progress("account", 1, 3)
    is_played = config.noise_audit.play and any(r.noise_multiplier for r in releases)
    checks = replay_bounds(case, releases) if is_played else []
    run.write_json(run.evidence / REPLAY, [asdict(check) for check in checks])
    progress("account", 2, 3)
    records = test_noise(run.artifacts, case, releases, config) if is_played else []
    run.write_json(run.evidence / NOISE_AUDITS, [r.model_dump(mode="json") for r in records])
    progress("account", 3, 3)


def replay_bounds(case: Case, releases: Sequence[Release]) -> list[BoundCheck]:
    """What neighbouring plays of the run say of each of its bounds.

    What a plugin of others raises is a reason why none is played; what our own code raises is an error.
    """
    if not isinstance(case, SimulatedCase):
        return decline(releases, "The federation ran elsewhere and cannot be played on other data.")
    try:
        return audit_bounds(case)
    except Exception as error:  # code of others, on data that it never met  # noqa: BLE001
        _require_plugin(error, case.config)
        return decline(releases, f"The run could not be played on other data ({type(error).__name__}: {error}).")


def test_noise(
    artifacts: Path, case: Case, releases: Sequence[Release], config: Config
) -> list[NoiseAuditRecord]:
    """The noise that the run draws, put to the test; of a recorded federation, that of its means and uploads."""
    alpha, delta = 1 - config.noise_audit.confidence, config.delta
    try:
        if isinstance(case, SimulatedCase):
            return audit_noise(case, releases, delta, alpha)
        tests, kinds = run_recorded_tests(read_messages(artifacts), releases, case.protections, alpha)
        return record_tests(tests, kinds, releases, delta, "No message of the record shows its noise.")
    except Exception as error:  # code of others, which sends what it never sent  # noqa: BLE001
        _require_plugin(error, config)
        missing = f"The run was not played: {type(error).__name__}: {error}."
        return record_tests((), set(), releases, delta, missing)


def _require_plugin(error: Exception, config: Config) -> None:
    """Raises the error again where no plugin of others can be its cause."""
    if not isinstance(error, UserError) and not config.list_code():
        raise error


def compute_accounts(run: RunDir, config: Config, case: Case, releases: Sequence[Release]) -> dict[str, Any]:
    """What follows from the ledger alone: file of evidence -> what it holds."""
    verified = verify_run(run, case, releases)
    found = budgets(releases, config.accountants, config.delta, verified)
    said = {"declared": verified.declared, "assumed": list(verified.assumed), "law": verified.law}
    return {
        LEDGER: {"issues": [issue._asdict() for issue in verified.issues], **said},
        BUDGETS: [b.model_dump(mode="json") for b in found],
    }


def verify_run(run: RunDir, case: Case, releases: Sequence[Release]) -> Verified:
    """The ledger against what else the folder holds; declared where nothing says what crossed the wire."""
    if not (run.artifacts / MANIFEST).is_file():
        return DECLARED
    history = run.history() if run.metrics.is_file() else []
    return verify(case, releases, manifest(run.artifacts), history)
