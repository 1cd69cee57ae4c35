"""Policy: the rules that turned evidence into severities, with the reason for each threshold."""

from reports.format import SEVERITIES
from reports.result import AuditResult
from reports.result import Policy as Record
from reports.section import Block, Card, Paragraph, Section, Table


class Policy(Section):
    card = Card(title="Policy", order=80)

    def build(self, result: AuditResult) -> list[Block]:
        policy = result.policy
        named = f"Severities were set by policy {policy.name}, version {policy.version}."
        named += f" {_fixed(policy)}" if policy.sha256 else ""
        if not policy.rules:
            return [Paragraph(f"{named} It has no rules, so every severity is none.")]
        rows = [[r.id, SEVERITIES[r.severity], r.when, r.reason] for r in policy.rules]
        return [
            Paragraph(f"{named} Another policy over the same evidence may rank findings otherwise."),
            Table(
                header=["Rule", "Severity", "When", "Reason"],
                rows=rows,
                align="llll",
                widths=[1.3, 1, 2.4, 3.6],
                caption="Every rule, with the reason for its threshold.",
            ),
        ]


def _fixed(policy: Record) -> str:
    """Whether it was there before the evidence was."""
    pinned = f"Its SHA-256 is {policy.sha256}."
    if not policy.fixed:
        return f"{pinned} It is not pre-registered: the attacks ran before it was chosen."
    evidence = f", the first evidence was there at {policy.first_evidence}" if policy.first_evidence else ""
    return f"{pinned} Its thresholds were fixed at {policy.fixed}{evidence}."
