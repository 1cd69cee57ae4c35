"""Policy: the rules that turned evidence into severities, with the reason for each threshold."""

from reports.format import SEVERITIES
from reports.result import AuditResult
from reports.section import Block, Card, Paragraph, Section, Table


class Policy(Section):
    card = Card(title="Policy", order=80)

    def build(self, result: AuditResult) -> list[Block]:
        policy = result.policy
        named = f"Severities were set by policy {policy.name}, version {policy.version}."
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
