"""Empirical audits of noise as findings: a claim is refuted, or consistent with what was tried."""

from collections.abc import Sequence

from attacks.evidence import Evidence
from audit.verdict.policy import Policy
from reports.result import DPAudit, Finding, Outcome, Severity

MEASURE = "claim_refuted"
REMEDY = (
    "Repair what the failed test names, and account for what ran: clip the whole vector that is sent, "
    "draw fresh noise for every client, round and coordinate, scaled to the enforced sensitivity, and "
    "enter every release in the ledger."
)
LIMIT = (
    "A lower bound holds for the adversary and the releases that were tried. That it lies below the upper "
    "bound is consistency, never confirmation."
)


def from_dp_audits(audits: Sequence[DPAudit], policy: Policy) -> list[Finding]:
    """One finding an audit. The severity of a refuted claim is the policy's rule for claim_refuted."""
    return [_finding(a, policy) for a in audits]


def _finding(audit: DPAudit, policy: Policy) -> Finding:
    outcome = Outcome.NOT_DEMONSTRATED
    if audit.refuted:
        outcome = Outcome.DEMONSTRATED
    elif audit.not_audited:
        outcome = Outcome.INCONCLUSIVE
    severity, reason = _severity(policy) if audit.refuted else (Severity.NONE, "")
    what = audit.kind.replace("_", " ")
    title = {
        Outcome.DEMONSTRATED: f"The privacy claimed for {what} is refuted",
        Outcome.NOT_DEMONSTRATED: f"The noise on {what} is consistent with the ledger",
        Outcome.INCONCLUSIVE: f"The noise on {what} was not audited",
    }[outcome]
    return Finding(
        id=audit.id,
        title=title,
        source="accountant",
        method=f"Empirical audits of: {audit.protection}",
        outcome=outcome,
        severity=severity,
        summary=audit.sentence,
        reason=reason,
        evidence=_evidence(audit),
        does_not_show=LIMIT,
        remedy=REMEDY if audit.refuted else "",
    )


def _evidence(audit: DPAudit) -> list[Evidence]:
    """The largest lower bound, where there is one."""
    bounds = [n for n in audit.numbers if n.column == "bound"]
    if not bounds:
        return []
    best = max(bounds, key=lambda n: n.epsilon)
    found = Evidence(
        measure="epsilon_lower",
        value=best.epsilon,
        unit="",
        trials=best.trials,
        interval=(best.epsilon, float("inf")),
        confidence=1 - audit.failure_rate,
        looks=sum(n.column == "bound" for n in audit.numbers),
        note=f"{best.audit}, {best.observer}; at delta {audit.delta:g}, {audit.rounds} releases"
        + (f"; assumes {best.assumes}" if best.assumes else ""),
    )
    return [found]


def _severity(policy: Policy) -> tuple[Severity, str]:
    for rule in policy.worst_first():
        if all(c.measure == MEASURE and c.holds(1) for c in rule.all):
            reason = " ".join(rule.reason.split())
            return (rule.severity, f"Rule {rule.id} of policy {policy.name} {policy.version}: {reason}")
    return Severity.CRITICAL, "A refuted claim is critical where the policy says nothing of it."
