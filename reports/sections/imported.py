"""Import: where a recorded federation came from, and which statements about it its messages bear out."""

from fedaudit.reports import format as fmt
from fedaudit.reports.imported import CheckedStatement
from fedaudit.reports.imported import ImportRecord as ImportedRecord
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Card, Heading, KeyValues, Paragraph, Section, Table

MOST_CLIENTS = 10  # rows and columns that fit a page; the whole is in audit.json


class Imported(Section):
    card = Card(title="Where it came from", order=22)

    def build(self, result: AuditResult) -> list[Block]:
        found = result.imported
        if found is None:
            return []  # the scope says that it was simulated
        blocks: list[Block] = [
            Paragraph(
                "This federation was not simulated. It ran elsewhere; a recorder kept its messages, and its "
                "operator stated the rest. Statements were checked as far as messages allow."
            ),
            *_canaries(found),
            KeyValues(items=_facts(found)),
            Table(
                header=["Statement", "Status", "What the messages say"],
                rows=[[c.title, c.status, c.text] for c in found.checks],
                align="lll",
                widths=[1.2, 0.8, 4],
                caption="A statement holds, is contradicted, is open where this record does not decide, or is "
                "declared: taken from its operator, since nothing recorded can.",
            ),
        ]
        for check in found.checks:
            blocks += _matrix(check)
        for title, items in (
            ("Set aside unread", [f"{u.sender}, round {u.round + 1}: {u.why}" for u in found.unread]),
            ("Not recorded", found.errors),
            ("Changed in the audited copy", found.changes),
        ):
            if items:
                blocks += [Heading(title), Bullets(items[:10])]
        return blocks


def _canaries(found: ImportedRecord) -> list[Block]:
    if not found.canaries:
        return []
    others = found.clients - len(found.canaries)
    one = len(found.canaries) == 1
    text = (
        f"{', '.join(found.canaries)} {'is a client' if one else 'are clients'} of the auditor's own, which took "
    )
    text += (
        f"part like the {fmt.plural(others, 'other')}. What was measured on {'it' if one else 'them'} speaks for "
    )
    text += "the others as far as they train alike on as many examples of that kind; it measures none of them."
    return [Paragraph(text)]


def _facts(found: ImportedRecord) -> dict[str, str]:
    filters = ", ".join(f"{name} ({fmt.plural(n, 'message')})" for name, n in found.filters.items())
    return {
        "Recorder": found.recorder or "not said",
        "Messages": f"{found.messages:,}, {found.bytes / 1e6:,.1f} MB",
        "Clients whose examples were given": f"{found.truth:,}"
        + (f" of {found.clients:,}" if found.clients else ""),
        **({"Canary clients, the auditor's own": ", ".join(found.canaries)} if found.canaries else {}),
        "Messages set aside, which nothing read": f"{len(found.unread):,}",
        "Messages the recorder could not keep": f"{len(found.errors):,}",
        **({"Privacy filters named": filters} if filters else {}),
        "SHA-256 of the inbox's manifest": found.sha256,
    }


def _matrix(check: CheckedStatement) -> list[Block]:
    if not check.matrix:
        return []
    names = check.names[:MOST_CLIENTS]
    rows = [
        [name, *(f"{v:.2f}" for v in row[:MOST_CLIENTS])] for name, row in zip(names, check.matrix, strict=False)
    ]
    more = "" if len(names) == len(check.names) else f" The first {MOST_CLIENTS} of {len(check.names)} clients."
    caption = (
        "Mean loss of the upload of each row on the data of each column; the smallest of a column is its owner's "
    )
    caption += f"where the map is right.{more}"
    return [Heading("Who is who"), Table(header=["upload of", *names], rows=rows, caption=caption)]
