"""Exposure: who saw what, before any attack is tried."""

from fedaudit.reports.exposed import PartyExposure as ExposureRecord
from fedaudit.reports.format import volume
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Paragraph, Section, Table


class Exposure(Section):
    card = Card(title="Who saw what", order=30)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.exposures:
            return [Paragraph("No message was recorded, so it is not known who saw anything.")]
        stated = result.imported.readers if result.imported else ""
        return [
            *([Paragraph(stated)] if stated else []),
            Paragraph(
                "Everything that crossed a trust boundary, by the party who could read it. "
                "A kind that *tells clients apart* reaches its reader as one client's own; "
                "most attacks need that."
            ),
            Table(
                header=["Party", "What it saw", "Tells clients apart", "Senders", "Messages", "Volume", "Rounds"],
                rows=[_row(e, result.scope.rounds) for e in result.exposures],
                align="lllrrrr",
                widths=[2.5, 4.9, 1.5, 1.3, 1.5, 1.4, 1.5],
                caption="Artifacts by party and kind. Start with rows that tell clients apart.",
            ),
        ]


def _row(e: ExposureRecord, rounds: int) -> list[str]:
    first, last = e.first_round + 1, e.last_round + 1
    first_to_last = f"{first}" if first == last else f"{first}–{last}"
    first_to_last = "after the last" if e.first_round >= rounds else first_to_last
    return [
        e.party,
        f"{e.kind}: {e.description}" if e.description else e.kind,
        "yes" if e.single_client else "no",
        f"{e.senders:,}",
        f"{e.messages:,}",
        volume(e.bytes),
        f"{e.rounds:,} ({first_to_last})" if e.rounds > 1 else first_to_last,
    ]
