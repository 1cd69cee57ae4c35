"""What the ledger says of a run that was accounted for, and what tests of its noise say of the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedaudit.audit.accounting.budget import budgets
from fedaudit.audit.accounting.lint import RunRecord, check
from fedaudit.audit.accounting.spending import PLAIN, BoundReleases, over_rounds
from fedaudit.audit.accounting.status import combine_status, list_results, withhold_numbers
from fedaudit.audit.accounting.verify import Issue, Verified
from fedaudit.audit.case.case import ObservedFederation, Participation, Split, counts
from fedaudit.audit.case.holders import find_overlaps, find_persons, holders
from fedaudit.audit.case.schemas import VerifiedFile
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.noise_audit.findings import (
    describe_noise_audit,
    list_contradictions,
    list_misstatements,
    list_noise_limits,
    list_refuted_bounds,
)
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.ledger import Release
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.format import plural
from fedaudit.reports.result import Figure, Finding, NoiseAuditRecord


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
