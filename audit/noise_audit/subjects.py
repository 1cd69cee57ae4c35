"""What accounting for privacy found: bounds, contradictions of accountants, lints, audits of noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.accounting.lint import LintResult, RunRecord, check
from fedaudit.audit.accounting.verify import Issue
from fedaudit.audit.verdict.subject import Subject
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.bound_text import describe_bound
from fedaudit.reports.result import NoiseAuditRecord, Outcome, Severity

REMEDY = (
    "Repair what the failed test names, and account for what ran: clip the whole vector that is sent, "
    "draw fresh noise for every client, round and coordinate, scaled to the enforced sensitivity, and "
    "enter every release in the ledger."
)
REFUTED = (
    "What ran loses more than its ledger allows, or its noise is not the noise that was stated: whoever "
    "relied on that has less privacy than promised."
)
LIMIT = (
    "A lower bound holds for the adversary and the releases that were tried. That it lies below the upper "
    "bound is consistency, never confirmation."
)


@dataclass(frozen=True)
class RefutedBound(Subject):
    """A bound that is refuted, for one reason towards several observers. How large one is, or that there is none,
    is no harm: the section on bounds says it."""

    bounds: Sequence[PrivacyBound]
    number: int

    severity = Severity.CRITICAL
    reason = REFUTED

    def words(self) -> Mapping[str, Any]:
        bound = self.bounds[0]
        articles = [b.observer if b.observer.startswith("another") else f"the {b.observer}" for b in self.bounds]
        return {
            "id": f"dp-{self.number}-{bound.observer.replace(' ', '-')}-{bound.unit}",
            "title": f"The mathematical limit stated towards {fmt.join_words(articles, 'or')} does not hold",
            "source": "accountant",
            "method": bound.accountant,
            "summary": f"For a {bound.unit}, {describe_bound(bound)}.",
            "does_not_show": "What the run really loses: no limit on it is known.",
            "remedy": REMEDY,
        }


@dataclass(frozen=True)
class Contradiction(Subject):
    """A bound that another accountant contradicts."""

    bound: PrivacyBound
    number: int

    severity = Severity.HIGH
    reason = "One of two programs is wrong, and which one is unknown; no bound holds until it is."

    def words(self) -> Mapping[str, Any]:
        b = self.bound
        return {
            "id": f"disagree-{self.number}-{b.observer.replace(' ', '-')}-{b.unit}",
            "title": f"The mathematical limit stated towards {b.observer} may be wrong: accountants disagree",
            "source": "accountant",
            "method": b.accountant,
            "summary": f"{describe_bound(b)}.",
            "does_not_show": "Which of the accountants is wrong; until that is known, none bounds the loss.",
            "remedy": "Use the largest of the values, and report the ledger that led to it.",
        }


@dataclass(frozen=True)
class Linted(Subject):
    """A flaw that a lint found."""

    lint: LintResult

    @property
    def severity(self) -> Severity:
        return self.lint.flaw.severity

    @property
    def reason(self) -> str:
        return self.lint.flaw.reason

    def words(self) -> Mapping[str, Any]:
        return {
            "id": f"lint-{self.lint.id}",
            "title": f"The mathematical limit means less than it says: {self.lint.title}",
            "source": "lint",
            "method": f"Noise lint {self.lint.id}",
            "summary": self.lint.flaw.what,
            "does_not_show": "A flaw shows that a bound does not cover the run; it demonstrates no leak.",
            "remedy": self.lint.flaw.remedy,
        }


@dataclass(frozen=True)
class Misstated(Subject):
    """A line of the ledger that the run contradicts."""

    issue: Issue

    severity = Severity.HIGH
    reason = "The stated epsilon is not that of what ran."

    def words(self) -> Mapping[str, Any]:
        what = self.issue.what
        return {
            "id": f"ledger-{self.issue.check}",
            "title": "The mathematical limit that is stated does not cover what ran: the ledger is another",
            "source": "lint",
            "method": f"Verifier of the ledger: {self.issue.check}",
            "summary": f"{what[:1].upper()}{what[1:]}",
            "does_not_show": "What the run really lost; no bound holds until the ledger is the run's own.",
            "remedy": "Enter what is really released, and restore files that were changed.",
        }


@dataclass(frozen=True)
class NoiseSubject(Subject):
    """The experiments on one noised kind: its claim is refuted, or consistent with what was tried."""

    audit: NoiseAuditRecord

    @property
    def outcome(self) -> Outcome:
        did = self.audit.refuted or not self.audit.not_audited
        return Outcome.RAN if did else Outcome.NOT_APPLICABLE

    @property
    def severity(self) -> Severity:
        return Severity.CRITICAL if self.audit.refuted else Severity.NONE

    @property
    def reason(self) -> str:
        if self.audit.refuted:
            return REFUTED
        return "" if self.outcome is Outcome.RAN else "No experiment on it could be made."

    def words(self) -> Mapping[str, Any]:
        what = self.audit.kind.replace("_", " ")
        title = f"The noise on {what} is consistent with the ledger"
        if self.audit.refuted:
            title = f"The privacy claimed for {what} is refuted"
        elif self.audit.not_audited:
            title = f"The noise on {what} was not audited"
        return {
            "id": self.audit.id,
            "title": title,
            "source": "accountant",
            "method": f"Tests of the noise of: {self.audit.protection}",
            "summary": self.audit.sentence,
            "evidence": [],
            "does_not_show": LIMIT,
            "remedy": REMEDY if self.audit.refuted else "",
        }


def make_bound_subjects(found: Sequence[PrivacyBound]) -> list[Subject]:
    """One subject a refuted bound; observers towards whom it is refuted for the same reason share one."""
    groups: dict[object, list[PrivacyBound]] = {}
    for b in (b for b in found if b.status is Status.REFUTED):
        groups.setdefault((b.accountant, b.unit, tuple(r.sentence for r in b.reasons)), []).append(b)
    return [RefutedBound(alike, number) for number, alike in enumerate(groups.values())]


def make_contradiction_subjects(found: Sequence[PrivacyBound]) -> list[Subject]:
    """One subject a bound that another accountant contradicts."""
    torn = [b for b in found if b.status is Status.REFUTED and any(r.source == "accountant" for r in b.reasons)]
    return [Contradiction(b, i) for i, b in enumerate(torn)]


def make_misstatement_subjects(issues: Sequence[Issue]) -> list[Subject]:
    """One subject a check that the ledger failed."""
    return [Misstated(issue) for issue in issues]


def list_noise_limits(record: RunRecord) -> list[str]:
    """What a simulation's noise is not: a secret."""
    if not any(r.generator for r in record.noised) or not record.witnessed:
        return []
    return [
        f"The noise of this simulation comes from a cipher ({CIPHER}) whose keys follow from the run's seed, so "
        "that it can be repeated; whoever knows the seed can subtract it. A deployment takes its keys from the "
        "operating system."
    ]


def make_lint_subjects(record: RunRecord) -> list[Subject]:
    """One subject a flaw."""
    return [Linted(found) for found in check(record)]
