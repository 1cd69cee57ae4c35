"""Rows: what clients' rows of a table hold, beside what attacks claim of them, column by column."""

from fedaudit.reports import format as fmt
from fedaudit.reports.exhibits import RowLines
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Heading, Paragraph, Section, Table

APART = (
    "The last column says how far a claim is off: of a number as a share of its column's range, of a category 0 "
    "where it is right and 1 where it is not."
)
WITHHELD = "Values of people's rows are withheld."


class RowPairs(Section):
    card = Card(title="Rows", order=44)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.rows:
            return []
        lead = f"{APART} {WITHHELD}" if any(r.redacted for r in result.rows) else APART
        blocks: list[Block] = [Paragraph(lead)]
        for tables in result.rows:
            blocks.append(Heading(tables.title))
            blocks += [_write(pair, tables.caption) for pair in tables.pairs]
        return blocks


def _write(pair: RowLines, caption: str) -> Table:
    columns = zip(pair.columns, pair.original, pair.claimed, pair.apart, strict=True)
    rows = [[name, true, claimed, fmt.number(apart)] for name, true, claimed, apart in columns]
    wrong, mean = sum(apart > 0 for apart in pair.apart), sum(pair.apart) / len(rows)
    differ = f"{wrong} of {fmt.plural(len(rows), 'column')} differ, by {fmt.number(mean)} over all"
    return Table(
        header=["Column", "Original", "Claimed", "Off by"],
        rows=rows,
        align="lllr",
        caption=f"{caption.rstrip('.')}. {fmt.sentence_case(pair.name)}: {differ}.",
    )
