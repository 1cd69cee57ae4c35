"""What accounting for privacy found: bounds, contradictions of accountants, lints, audits of noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.accounting.lint import LintResult, RunRecord, check
from fedaudit.audit.accounting.verify import Issue
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.bound_text import describe_bound, label_bound
from fedaudit.reports.result import NoiseAuditRecord, Outcome

REMEDY = (
    "Repair what the failed test names, and account for what ran: clip the whole vector that is sent, "
    "draw fresh noise for every client, round and coordinate, scaled to the enforced sensitivity, and "
    "enter every release in the ledger."
)
LIMIT = (
    "A lower bound holds for the adversary and the releases that were tried. That it lies below the upper "
    "bound is consistency, never confirmation."
)


@dataclass(frozen=True)
class BoundSubject(Subject):
    """One accountant's bound, towards several observers where none of them is bounded, for one reason."""

    bounds: Sequence[PrivacyBound]
    number: int

    @property
    def found(self) -> Sequence[Fact]:
        refuted = self.bounds[0].status is Status.REFUTED
        cost = Fact(measure="epsilon_upper", value=self.bounds[0].epsilon)
        return [cost, Fact(measure="claim_refuted", value=1)] if refuted else [cost]

    @property
    def not_gradable(self) -> Verdict | None:
        if not self.bounds[0].is_open:
            return None
        reason = "The accountant ran past its cap of time or memory."
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        bound = self.bounds[0]
        articles = [b.observer if b.observer.startswith("another") else f"the {b.observer}" for b in self.bounds]
        title, limit, remedy = _explain(bound, fmt.join_words(articles, "or"))
        assumes = f" Assuming: {bound.assumes}." if bound.assumes else ""
        adjacency = f" Adjacency: {bound.adjacency.replace('_', ' ')}." if bound.holds else ""
        summary = f"For a {bound.unit}, {describe_bound(bound)}.{assumes}{adjacency} {bound.note}"
        return {
            "id": f"dp-{self.number}-{bound.observer.replace(' ', '-')}-{bound.unit}",
            "title": title,
            "source": "accountant",
            "method": bound.accountant,
            "summary": summary.strip(),
            "does_not_show": limit,
            "remedy": remedy,
        }


def _explain(bound: PrivacyBound, who: str) -> tuple[str, str, str]:
    """Title, what a bound of this status does not show, and what to do about it."""
    limit = f"epsilon {label_bound(bound)}, at delta {bound.delta:g}, per {bound.unit}"
    if bound.status is Status.VERIFIED:
        return (
            f"Privacy loss towards {who}: {limit}",
            "Proof: no counterexample was found, and the bound holds only while its assumptions do.",
            "More noise, or fewer rounds, lowers it.",
        )
    if bound.status is Status.DECLARED:
        return (
            f"Privacy loss towards {who}: {limit}",
            "That what is declared is true: some of it could not be checked.",
            "More noise, or fewer rounds, lowers it; what could not be checked is listed with it.",
        )
    if bound.status is Status.REFUTED:
        return (
            f"The differential-privacy bound towards {who} is refuted",
            "What the run really loses: no limit on it is known.",
            REMEDY,
        )
    if bound.is_open:
        return (
            f"Whether a differential-privacy bound holds towards {who} is open",
            "That no bound was found says nothing about whether one exists.",
            "Give the accountant more time or memory, or use `auto`.",
        )
    return (
        f"No differential-privacy bound holds towards {who}",
        "A bound would limit every attack. Its absence demonstrates no leak.",
        "Withhold what is released in clear, or protect it with `dp_gaussian`.",
    )


@dataclass(frozen=True)
class Contradiction(Subject):
    """A bound that another accountant contradicts."""

    bound: PrivacyBound
    number: int

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="accountants_disagree", value=1)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        b = self.bound
        return {
            "id": f"disagree-{self.number}-{b.observer.replace(' ', '-')}-{b.unit}",
            "title": f"Accountants disagree on the bound towards {b.observer}",
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
    def found(self) -> Sequence[Fact]:
        return [Fact(measure=f"lint_{self.lint.id}", value=self.lint.flaw.count)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        return {
            "id": f"lint-{self.lint.id}",
            "title": self.lint.title,
            "source": "lint",
            "method": f"Noise lint {self.lint.id}",
            "summary": self.lint.flaw.what,
            "does_not_show": "A flaw shows that a bound does not cover the run; it demonstrates no leak.",
            "remedy": self.lint.flaw.remedy,
        }


@dataclass(frozen=True)
class Misstated(Subject):
    """A line of the ledger that the run contradicts; graded as releases that are missing (L6)."""

    issue: Issue

    @property
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="lint_L6", value=self.issue.times)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        what = self.issue.what
        return {
            "id": f"ledger-{self.issue.check}",
            "title": "The ledger is not that of the run",
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
    def found(self) -> Sequence[Fact]:
        return [Fact(measure="claim_refuted", value=float(self.audit.refuted))]

    @property
    def not_gradable(self) -> Verdict | None:
        if self.audit.refuted or not self.audit.not_audited:
            return None
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason="No experiment on it could be made.")

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
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
    """One subject a bound; observers for whom no bound holds for the same reason share one."""
    groups: dict[object, list[PrivacyBound]] = {}
    for i, b in enumerate(found):
        grouped = not b.holds and not b.is_open
        key = (b.accountant, b.unit, b.status, tuple(r.sentence for r in b.reasons)) if grouped else i
        groups.setdefault(key, []).append(b)
    return [BoundSubject(alike, number) for number, alike in enumerate(groups.values())]


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
    """One subject a flaw; severities are the policy's rules for `lint_L1`, `lint_L2`, ..."""
    return [Linted(found) for found in check(record)]
