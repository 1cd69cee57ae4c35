"""Texts: what clients' texts say, above what attacks claim of them, word for word."""

from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Paragraph, Section, Sentences

MARKS = (
    "Words that are right in their place are underlined, those that are right elsewhere dotted, wrong ones "
    "struck through, and missed ones stand in brackets."
)
HIDDEN = "Words of people's texts are withheld: [name], [number] and [word] say what stood in their place."


class TextPairs(Section):
    card = Card(title="Texts", order=43)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.texts:
            return []
        lead = f"{MARKS} {HIDDEN}" if any(t.redacted for t in result.texts) else MARKS
        return [Paragraph(lead), *(Sentences(t) for t in result.texts)]
