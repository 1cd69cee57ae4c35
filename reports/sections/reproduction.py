"""Reproduction: everything needed to run this audit again and compare it byte for byte."""

from reports import format as fmt
from reports.result import AuditResult
from reports.section import Block, Card, Code, Heading, KeyValues, Paragraph, Section, Table


class Reproduction(Section):
    card = Card(title="How to reproduce", order=90)

    def build(self, result: AuditResult) -> list[Block]:
        r = result.reproduction
        facts = {"Seed": str(r.seed), "Started": r.started}
        facts |= {f"Time, {phase}": fmt.duration(s) for phase, s in r.seconds.items()}
        blocks: list[Block] = [Code(r.command, language="sh"), KeyValues(items=facts)]
        for title, items in (("Versions", r.versions), ("Hardware", r.hardware)):
            blocks.append(Heading(title))
            blocks.append(KeyValues(items=items) if items else Paragraph("Not recorded."))
        blocks.append(Heading("Files"))
        if r.hashes:
            blocks.append(
                Table(
                    header=["File", "SHA-256"],
                    rows=[[name, digest] for name, digest in r.hashes.items()],
                    align="ll",
                    widths=[2, 3.4],
                    caption="What this report was made from. Compare with your copy of the run.",
                )
            )
        else:
            blocks.append(Paragraph("No file was hashed, so a changed input would go unnoticed."))
        return [*blocks, Heading("Configuration"), _config(r.config)]


def _config(text: str) -> Block:
    return Code(text, language="yaml") if text.strip() else Paragraph("Not recorded.")
