"""The bounds of a run with their status, from the evidence that the account phase left."""

from fedaudit.audit.accounting.budget import SpentBudget, budgets
from fedaudit.audit.accounting.spending import PLAIN, BoundReleases
from fedaudit.audit.accounting.verify import Issue, Verified
from fedaudit.audit.case.case import Case, Examples, counts
from fedaudit.audit.case.holders import find_overlaps, holders
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import VerifiedFile
from fedaudit.audit.noise_audit.status import BoundCheck, combine_status, list_results
from fedaudit.fl.data.dataset import Data
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.format import plural
from fedaudit.reports.result import NoiseAuditRecord


def read_bounds(run: RunDir, case: Case) -> list[PrivacyBound]:
    """The bounds of a run that was accounted for, towards each observer, for each unit, by each accountant."""
    found = run.read(run.evidence / "budgets.json", list[SpentBudget])
    return combine_status(
        found,
        read_verification(run, case.examples, case.data),
        read_checks(run),
        list_results(read_noise_audits(run)),
        describe_population(case),
    )


def bind_status(run: RunDir, case: Case, verified: Verified, delta: float) -> BoundReleases:
    """A function that bounds any part of the run's ledger, with the status that the whole evidence gives it."""
    checks, results, population = (
        read_checks(run),
        list_results(read_noise_audits(run)),
        describe_population(case),
    )
    return lambda some: combine_status(
        budgets(some, PLAIN, delta, verified), verified, checks, results, population
    )


def read_verification(run: RunDir, examples: Examples, data: Data) -> Verified:
    """What the verifier said of the run's ledger."""
    file = run.read(run.evidence / "ledger.json", VerifiedFile)
    return Verified(
        issues=tuple(Issue(**i.model_dump()) for i in file.issues),
        declared=file.declared,
        overlaps=find_overlaps(holders(examples, data)),
        assumed=tuple(file.assumed),
        law=file.law,
    )


def read_checks(run: RunDir) -> list[BoundCheck]:
    """What the replay said of each bound; empty where nothing was played."""
    return run.read(run.evidence / "replay.json", list[BoundCheck])


def read_noise_audits(run: RunDir) -> list[NoiseAuditRecord]:
    """The tests of the noise on each kind; empty where none were made."""
    return run.read(run.evidence / "noise_audits.json", list[NoiseAuditRecord])


def describe_population(case: Case) -> dict[str, str]:
    """Of whom a bound of each unit speaks, and how they come to take part."""
    held = int(counts(case.clients, case.examples, case.data).sum())
    clients = plural(case.clients, "client")
    drawn = f" ({case.availability.describe()})" if case.availability else ""
    records = plural(held, "record") if held else "the records"
    return {"client": f"{clients}{drawn}", "record": f"{records} of {clients}{drawn}"}
