"""What accounting for privacy found: refuted bounds, contradictions of accountants, the ledger, the noise."""

from collections.abc import Sequence

from fedaudit.audit.accounting.lint import RunRecord
from fedaudit.audit.accounting.verify import Issue
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.bound_text import describe_bound
from fedaudit.reports.result import Finding, NoiseAuditRecord, Outcome, Severity

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


def list_refuted_bounds(found: Sequence[PrivacyBound]) -> list[Finding]:
    """One finding a refuted bound; observers towards whom it is refuted for the same reason share one.

    How large a bound is, or that there is none, is no harm: the section on bounds says it.
    """
    groups: dict[object, list[PrivacyBound]] = {}
    for b in (b for b in found if b.status is Status.REFUTED):
        groups.setdefault((b.accountant, b.unit, tuple(r.sentence for r in b.reasons)), []).append(b)
    return [_describe_refuted(alike, number) for number, alike in enumerate(groups.values())]


def _describe_refuted(bounds: Sequence[PrivacyBound], number: int) -> Finding:
    bound = bounds[0]
    articles = [b.observer if b.observer.startswith("another") else f"the {b.observer}" for b in bounds]
    return Finding(
        id=f"dp-{number}-{bound.observer.replace(' ', '-')}-{bound.unit}",
        title=f"The mathematical limit stated towards {fmt.join_words(articles, 'or')} does not hold",
        source="accountant",
        method=bound.accountant,
        severity=Severity.CRITICAL,
        reason=REFUTED,
        summary=f"For a {bound.unit}, {describe_bound(bound)}.",
        does_not_show="What the run really loses: no limit on it is known.",
        remedy=REMEDY,
    )


def list_contradictions(found: Sequence[PrivacyBound]) -> list[Finding]:
    """One finding a bound that another accountant contradicts."""
    torn = [b for b in found if b.status is Status.REFUTED and any(r.source == "accountant" for r in b.reasons)]
    return [
        Finding(
            id=f"disagree-{number}-{b.observer.replace(' ', '-')}-{b.unit}",
            title=f"The mathematical limit stated towards {b.observer} may be wrong: accountants disagree",
            source="accountant",
            method=b.accountant,
            severity=Severity.HIGH,
            reason="One of two programs is wrong, and which one is unknown; no bound holds until it is.",
            summary=f"{describe_bound(b)}.",
            does_not_show="Which of the accountants is wrong; until that is known, none bounds the loss.",
            remedy="Use the largest of the values, and report the ledger that led to it.",
        )
        for number, b in enumerate(torn)
    ]


def list_misstatements(issues: Sequence[Issue]) -> list[Finding]:
    """One finding a check that the ledger failed: a line of it that the run contradicts."""
    return [
        Finding(
            id=f"ledger-{issue.check}",
            title="The mathematical limit that is stated does not cover what ran: the ledger is another",
            source="lint",
            method=f"Verifier of the ledger: {issue.check}",
            severity=Severity.HIGH,
            reason="The stated epsilon is not that of what ran.",
            summary=f"{issue.what[:1].upper()}{issue.what[1:]}",
            does_not_show="What the run really lost; no bound holds until the ledger is the run's own.",
            remedy="Enter what is really released, and restore files that were changed.",
        )
        for issue in issues
    ]


def describe_noise_audit(audit: NoiseAuditRecord) -> Finding:
    """The experiments on one noised kind: its claim is refuted, or consistent with what was tried."""
    what = audit.kind.replace("_", " ")
    title, outcome, reason = f"The noise on {what} is consistent with the ledger", Outcome.RAN, ""
    if audit.refuted:
        title, reason = f"The privacy claimed for {what} is refuted", REFUTED
    elif audit.not_audited:
        title, outcome = f"The noise on {what} was not audited", Outcome.NOT_APPLICABLE
        reason = "No experiment on it could be made."
    return Finding(
        id=audit.id,
        title=title,
        source="accountant",
        method=f"Tests of the noise of: {audit.protection}",
        outcome=outcome,
        severity=Severity.CRITICAL if audit.refuted else Severity.NONE,
        reason=reason,
        summary=audit.sentence,
        does_not_show=LIMIT,
        remedy=REMEDY if audit.refuted else "",
    )


def list_noise_limits(record: RunRecord) -> list[str]:
    """What a simulation's noise is not: a secret."""
    if not any(r.generator for r in record.noised) or not record.witnessed:
        return []
    return [
        f"The noise of this simulation comes from a cipher ({CIPHER}) whose keys follow from the run's seed, so "
        "that it can be repeated; whoever knows the seed can subtract it. A deployment takes its keys from the "
        "operating system."
    ]
