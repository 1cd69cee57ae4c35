"""Galleries: what attacks drew, beside what was there; one strip each on paper, all images on a screen."""

from fedaudit.reports.format import plural
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Folded, Paragraph, Pictures, Section, Table

MOST_PRINTED = 1  # a screen has them all


class Galleries(Section):
    card = Card(title="Galleries", order=42)

    def build(self, result: AuditResult) -> list[Block]:
        blocks: list[Block] = []
        if count := sum(w.pictures for w in result.withheld):
            blocks.append(
                Paragraph(
                    f"{plural(count, 'picture')} of people's data, and of what attacks drew of it, are withheld. "
                    "The run folder keeps them; `show: full` in the config shows them."
                )
            )
            rows = [[w.title, str(w.pictures), w.sha256[:16]] for w in result.withheld]
            blocks.append(
                Table(
                    header=["Withheld", "Pictures", "SHA-256"],
                    rows=rows,
                    align="lrl",
                    caption="What is withheld, and the digest of its pictures.",
                )
            )
        if not result.galleries:
            return blocks
        lead = (
            "Columns belong together. Compare a reconstruction with the rows that no message was needed for: "
            "where they are as good, nothing was learned."
        )
        shown = [Pictures(g) for g in result.galleries]
        blocks += [Paragraph(lead), *shown[:MOST_PRINTED]]
        if more := shown[MOST_PRINTED:]:
            blocks.append(Folded(f"{plural(len(more), 'more gallery', 'more galleries')}", [*more]))
        return blocks
