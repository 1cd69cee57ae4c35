"""The bounds of a run with their status, from the evidence that the account phase left."""

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.spending import PLAIN, BoundReleases
from fedaudit.audit.accounting.status import combine_status, list_results
from fedaudit.audit.accounting.verify import Issue, Verified
from fedaudit.audit.case.case import Examples, counts
from fedaudit.audit.case.holders import find_overlaps, find_persons, holders
from fedaudit.audit.case.schemas import VerifiedFile
from fedaudit.audit.phases.evidence import EvidenceFolder
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.participation import Availability
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.format import plural


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


def read_verified(file: VerifiedFile, examples: Examples, data: Data) -> Verified:
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
    clients: int, examples: Examples, data: Data, availability: Availability | None
) -> dict[str, str]:
    """Of whom a bound of each unit speaks, and how they come to take part."""
    held = int(counts(clients, examples, data).sum())
    drawn = f" ({availability.describe()})" if availability else ""
    records = plural(held, "record") if held else "the records"
    people = plural(clients, "client")
    found = {"client": f"{people}{drawn}", "record": f"{records} of {people}{drawn}"}
    owner = data.train.owner
    if owner is not None:
        named = len({int(k) for rows in examples.parts.values() for k in owner[rows]})
        found["person"] = f"{plural(named, 'person')} of {people}{drawn}"
    return found
