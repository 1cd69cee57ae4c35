"""Reproduction: everything needed to run this audit again and compare it byte for byte."""

from collections.abc import Mapping

from reports import format as fmt
from reports.result import AuditResult
from reports.section import Block, Card, Code, Heading, KeyValues, Paragraph, Section, Table


class Reproduction(Section):
    card = Card(title="How to reproduce", order=90)

    def build(self, result: AuditResult) -> list[Block]:
        r = result.reproduction
        facts = {"Seed": str(r.seed), "Started": r.started}
        facts |= {"Commit": r.commit} if r.commit else {}
        facts |= {"Threads": r.threads} if r.threads else {}
        facts |= {f"Time, {phase}": fmt.duration(s) for phase, s in r.seconds.items()}
        blocks: list[Block] = [Code(r.command, language="sh"), KeyValues(items=facts)]
        for title, items in (("Versions", r.versions), ("Hardware", r.hardware)):
            blocks.append(Heading(title))
            blocks.append(KeyValues(items=items) if items else Paragraph("Not recorded."))
        if r.inputs:
            blocks.append(Heading("Data and code"))
            blocks.append(_digests(r.inputs, "What", "Data, packages and plugins that the run was made with."))
        blocks.append(Heading("Files"))
        if r.hashes:
            caption = "What this report was made from. Compare with your copy of the run."
            blocks.append(_digests(r.hashes, "File", caption))
        else:
            blocks.append(Paragraph("No file was hashed, so a changed input would go unnoticed."))
        return [*blocks, Heading("Configuration"), _config(r.config)]


def _digests(found: Mapping[str, str], of: str, caption: str) -> Block:
    rows = [[name, digest] for name, digest in found.items()]
    return Table(header=[of, "SHA-256"], rows=rows, align="ll", widths=[2, 3.4], caption=caption)


def _config(text: str) -> Block:
    return Code(text, language="yaml") if text.strip() else Paragraph("Not recorded.")
