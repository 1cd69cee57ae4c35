"""Phase 3: add up what the ledger says, per observer and unit, and ask the run itself whether it is true.

Leaves evidence/ledger.json, evidence/budgets.json, evidence/replay.json and evidence/noise_audits.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.child import keep
from fedaudit.audit.accounting.status import BoundCheck, decline
from fedaudit.audit.accounting.verify import Verified, verify
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.files import BUDGETS, LEDGER, NOISE_AUDITS, REPLAY
from fedaudit.audit.noise_audit.drawn_noise import audit_noise
from fedaudit.audit.noise_audit.noise_tests import record_tests, run_recorded_tests
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.recording.recorder import read as read_messages
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.result import NoiseAuditRecord

Progress = Callable[[str, int, int], None]
ADDED, PLAYED, OF = 10, 80, 100  # of the work of this phase, roughly
ALPHA = 0.01  # of all tests of the noise together


@keep()
def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Bounds from every accountant the config names, and lower bounds by experiment."""
    progress("account", 0, OF)
    releases = read(run.ledger)
    case = open_case(run, config)
    verified = verify(case, releases, manifest(run.artifacts))
    for name, found in compute_accounts(releases, config.accountants, config.delta, verified).items():
        run.write_json(run.evidence / name, found)
    progress("account", ADDED, OF)
    is_played = config.noise_audit and any(r.noise_multiplier for r in releases)
    is_ours, alpha = not config.list_code(), ALPHA
    say = partial(_report_pairs, progress)
    play = partial(audit_bounds, case, releases, progress=say) if isinstance(case, SimulatedCase) else None
    checks = check_bounds(play, releases, is_ours=is_ours) if is_played else []
    run.write_json(run.evidence / REPLAY, [asdict(check) for check in checks])
    progress("account", PLAYED, OF)
    test = partial(_test_recorded, run.artifacts, case.protections, releases, config.delta, alpha)
    if isinstance(case, SimulatedCase):
        test = partial(audit_noise, case, releases, config.delta, alpha)
    records = test_noise(test, releases, config.delta, is_ours=is_ours) if is_played else []
    run.write_json(run.evidence / NOISE_AUDITS, [r.model_dump(mode="json") for r in records])
    progress("account", OF, OF)


def _report_pairs(progress: Progress, done: int, total: int) -> None:
    progress("account", ADDED + (PLAYED - ADDED) * done // total, OF)


def check_bounds(
    play: Callable[[], list[BoundCheck]] | None, releases: Sequence[Release], *, is_ours: bool
) -> list[BoundCheck]:
    """What neighbouring plays of the run say of each of its bounds; `play` is None where it ran elsewhere.

    What a plugin of others raises is a reason why none is played; what our own code raises is an error.
    `is_ours`: the config names no code of others.
    """
    if play is None:
        return decline(releases, "The federation ran elsewhere and cannot be played on other data.")
    try:
        return play()
    except Exception as error:  # code of others, on data that it never met  # noqa: BLE001
        why = _explain(error, is_ours)
        return decline(releases, f"The run could not be played on other data ({why}).")


def test_noise(
    test: Callable[[], list[NoiseAuditRecord]], releases: Sequence[Release], delta: float, *, is_ours: bool
) -> list[NoiseAuditRecord]:
    """The noise that the run draws, put to the test; errors are treated as in `check_bounds`."""
    try:
        return test()
    except Exception as error:  # code of others, which sends what it never sent  # noqa: BLE001
        missing = f"The run was not played: {_explain(error, is_ours)}."
        return record_tests((), set(), releases, delta, missing)


def _test_recorded(
    artifacts: Path, protections: Sequence[Protection], releases: Sequence[Release], delta: float, alpha: float
) -> list[NoiseAuditRecord]:
    tests, kinds = run_recorded_tests(read_messages(artifacts), releases, protections, alpha)
    return record_tests(tests, kinds, releases, delta, "No message of the record shows its noise.")


def _explain(error: Exception, is_ours: bool) -> str:
    """Raises the error again where no plugin of others can be its cause."""
    if is_ours and not isinstance(error, UserError):
        raise error
    return f"{type(error).__name__}: {quote_error(error)}"


def compute_accounts(
    releases: Sequence[Release], accountants: Sequence[PluginSpec], delta: float, verified: Verified
) -> dict[str, Any]:
    """What follows from the ledger alone: file of evidence -> what it holds."""
    found = budgets(releases, accountants, delta, verified)
    said = {"declared": verified.declared, "assumed": list(verified.assumed), "law": verified.law}
    said["cohort"] = verified.cohort
    return {
        LEDGER: {"issues": [issue._asdict() for issue in verified.issues], **said},
        BUDGETS: [b.model_dump(mode="json") for b in found],
    }
