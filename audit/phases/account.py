"""Phase 3: add up what the ledger says, per observer and unit, and ask the run itself whether it is true.

Leaves evidence/ledger.json, evidence/budgets.json, evidence/replay.json and evidence/noise_audits.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.child import keep
from fedaudit.audit.accounting.lint import RunRecord, check
from fedaudit.audit.accounting.spending import PLAIN, BoundReleases, over_rounds
from fedaudit.audit.accounting.status import BoundCheck, combine_status, decline, list_results, withhold_numbers
from fedaudit.audit.accounting.verify import Issue, Verified, verify
from fedaudit.audit.case.case import ObservedFederation, Participation, Split, counts
from fedaudit.audit.case.holders import find_overlaps, find_persons, holders
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import VerifiedFile
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.drawn_noise import audit_noise
from fedaudit.audit.noise_audit.findings import (
    describe_noise_audit,
    list_contradictions,
    list_misstatements,
    list_noise_limits,
    list_refuted_bounds,
)
from fedaudit.audit.noise_audit.noise_tests import record_tests, run_recorded_tests
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.phases.evidence import BUDGETS, LEDGER, NOISE_AUDITS, REPLAY, EvidenceFolder
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.recording.recorder import read as read_messages
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.format import plural
from fedaudit.reports.result import Figure, Finding, NoiseAuditRecord

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


def read_bounds(evidence: EvidenceFolder, verified: Verified, population: dict[str, str]) -> list[PrivacyBound]:
    """The bounds of a run that was accounted for, towards each observer, for each unit, by each accountant."""
    results = list_results(evidence.noise_audits)
    return combine_status(evidence.budgets, verified, evidence.bound_checks, results, population)


def bind_status(
    evidence: EvidenceFolder, verified: Verified, population: dict[str, str], delta: float
) -> BoundReleases:
    """A function that bounds any part of the run's ledger, with the status that the whole evidence gives it."""
    checks, results = evidence.bound_checks, list_results(evidence.noise_audits)
    return lambda some: combine_status(
        budgets(some, PLAIN, delta, verified), verified, checks, results, population
    )


def read_verified(file: VerifiedFile, examples: Split, data: Data) -> Verified:
    """What the verifier said of the run's ledger."""
    return Verified(
        issues=tuple(Issue(**i.model_dump()) for i in file.issues),
        declared=file.declared,
        overlaps=find_overlaps(holders(examples, data)),
        persons=find_persons(examples, data),
        assumed=tuple(file.assumed),
        law=file.law,
        cohort=file.cohort,
    )


def describe_population(
    clients: int, examples: Split, data: Data, participation: Participation
) -> dict[str, str]:
    """Of whom a bound of each unit speaks, and how they come to take part."""
    held = int(counts(clients, examples, data).sum())
    drawn = f" ({'; '.join(participation.sentences)})" if participation.sentences else ""
    records = plural(held, "record") if held else "the records"
    people = plural(clients, "client")
    found = {"client": f"{people}{drawn}", "record": f"{records} of {people}{drawn}"}
    owner = data.train.owner
    if owner is not None:
        named = len({int(k) for rows in examples.parts.values() for k in owner[rows]})
        found["person"] = f"{plural(named, 'person')} of {people}{drawn}"
    return found


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the ledger says of a run, and what tests of its noise say of the ledger."""

    releases: Sequence[Release]
    verified: Verified
    bounds: list[PrivacyBound]
    noise_audits: list[NoiseAuditRecord]
    record: RunRecord
    over: BoundReleases  # bounds any part of the releases

    def list_findings(self) -> list[Finding]:
        """One for each thing that is wrong with it, and each test of noise."""
        return [
            *list_refuted_bounds(self.bounds),
            *list_contradictions(self.bounds),
            *list_misstatements(self.verified.issues),
            *check(self.record),
            *map(describe_noise_audit, self.noise_audits),
        ]

    def list_limits(self) -> list[str]:
        """What cannot be told of its noise."""
        return list_noise_limits(self.record)

    def plot(self) -> list[Figure]:
        """Spending over the rounds."""
        return over_rounds(self.releases, self.bounds, self.over)


def read_account(
    federation: ObservedFederation,
    evidence: EvidenceFolder,
    releases: Sequence[Release],
    delivered: list[int],
    rounds: int,
    delta: float,
) -> Account:
    """That of a run with these rounds, in which so many answers were `delivered` in each."""
    clients, examples, data = federation.clients, federation.examples, federation.data
    verified = read_verified(evidence.ledger, examples, data)
    population = describe_population(clients, examples, data, federation.participation)
    # whatever leaves a simulated client is in the ledger: where nothing left, nothing is to be bounded
    is_silent = federation.simulated and not releases
    bounds = [] if is_silent else read_bounds(evidence, verified, population)
    largest = int(counts(clients, examples, data).sum(1).max(initial=0))
    return Account(
        releases=releases,
        verified=verified,
        bounds=bounds,
        noise_audits=withhold_numbers(evidence.noise_audits, bounds),
        record=RunRecord(
            releases=releases,
            bounds=bounds,
            delta=delta,
            units={"client": clients, "record": largest},
            delivered=delivered,
            rounds=rounds,
            witnessed=federation.simulated,
        ),
        over=bind_status(evidence, verified, population, delta),
    )
