"""Limits: what the audit does not cover, said by the audit itself."""

from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Card, Paragraph, Section


class Limits(Section):
    card = Card(title="Limits of this audit", order=70)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.limits:
            return [Paragraph("The audit recorded no limits. Every audit has some: ask for them.")]
        return [Paragraph("Not covered, and therefore neither shown nor ruled out:"), Bullets(result.limits)]
