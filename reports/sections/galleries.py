"""Galleries: what attacks drew, beside what was there; one strip each on paper, all images on a screen."""

from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Images, Paragraph, Section


class Galleries(Section):
    card = Card(title="Galleries", order=42)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.galleries:
            return []
        lead = (
            "Columns belong together. Compare a reconstruction with the rows that no message was needed for: "
            "where they are as good, nothing was learned."
        )
        return [Paragraph(lead), *(Images(g) for g in result.galleries)]
