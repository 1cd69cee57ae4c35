"""Lints and contradictions of accountants as findings, judged by the policy."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from audit.dp.lint import Found, RunRecord, check
from audit.subject.case import Case, counts
from audit.verdict.policy import Policy, Rule
from fl.ledger import Release
from reports.result import Budget, Finding, Outcome, Severity

LIMIT = "A flaw shows that a bound does not cover the run; it demonstrates no leak."


def run_record(
    case: Case,
    delta: float,
    releases: Sequence[Release],
    budgets: Sequence[Budget],
    delivered: Sequence[int],
    phases: Sequence[str] = (),
) -> RunRecord:
    """What the lints read of one run."""
    records = int(counts(case).sum(1).max(initial=0))
    return RunRecord(
        releases=releases,
        budgets=budgets,
        delta=delta,
        units={"client": case.clients, "record": records},
        drawn=case.sampling(None),
        delivered=delivered,
        phases=phases,
    )


def from_lints(found: RunRecord, policy: Policy) -> list[Finding]:
    """One finding a flaw; severities are the policy's rules for `lint_L1`, `lint_L2`, ..."""
    return [_finding(f, policy) for f in check(found)]


def _finding(found: Found, policy: Policy) -> Finding:
    rule = _rule(f"lint_{found.id}", found.flaw.count, policy)
    return Finding(
        id=f"lint-{found.id}",
        title=found.title,
        source="lint",
        method=f"Noise lint {found.id}",
        outcome=Outcome.DEMONSTRATED,
        severity=rule.severity if rule else Severity.LOW,
        summary=found.flaw.what,
        reason=_reason(rule, policy),
        does_not_show=LIMIT,
        remedy=found.flaw.remedy,
    )


def from_disagreements(budgets: Sequence[Budget], policy: Policy) -> list[Finding]:
    """One finding for each bound that another accountant contradicts."""
    found = [b for b in budgets if b.disagrees]
    rule = _rule("accountants_disagree", len(found), policy)
    return [
        Finding(
            id=f"disagree-{number}-{b.observer.replace(' ', '-')}-{b.unit}",
            title=f"Accountants disagree on the bound towards {b.observer}",
            source="accountant",
            method=b.accountant,
            outcome=Outcome.DEMONSTRATED,
            severity=rule.severity if rule else Severity.LOW,
            summary=b.disagrees,
            reason=_reason(rule, policy),
            does_not_show="Which of the accountants is wrong; until that is known, none bounds the loss.",
            remedy="Use the largest of the values, and report the ledger that led to it.",
        )
        for number, b in enumerate(found)
    ]


def _rule(measure: str, count: int, policy: Policy) -> Rule | None:
    """The severest rule that names this measure; patterns for attacks such as `*` do not."""
    for rule in policy.worst_first():
        if all(
            c.measure.startswith(("lint_", "accountants_")) and fnmatchcase(measure, c.measure) and c.holds(count)
            for c in rule.all
        ):
            return rule
    return None


def _reason(rule: Rule | None, policy: Policy) -> str:
    if rule is None:
        return f"Policy {policy.name} {policy.version} has no rule for it."
    return f"Rule {rule.id} of policy {policy.name} {policy.version}: {' '.join(rule.reason.split())}"
