"""Reproduction: everything needed to run this audit again and compare it byte for byte."""

from collections.abc import Mapping

from fedaudit.reports import format as fmt
from fedaudit.reports.record import SealRecord
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Code, Folded, Heading, KeyValues, Paragraph, Section, Table

STATED = (
    "The commit, and times, threads and hardware in audit.json, are stated by the owner of the run: nobody "
    "signed them or this report. "
    "`fedaudit check RUN --sign KEY.pem` signs model, audit and report."
)
SIGNED = (
    "The commit, and times, threads and hardware in audit.json, are as the owner of the run stated them, and are "
    "under the seal below."
)


class Reproduction(Section):
    card = Card(title="How to reproduce", order=90)

    def build(self, result: AuditResult) -> list[Block]:
        r = result.reproduction
        facts = {"Seed": str(r.seed)}
        facts |= {"Commit": r.commit} if r.commit else {}
        blocks: list[Block] = [Code(r.command, language="sh"), KeyValues(items=facts)]
        blocks.append(Paragraph(STATED if result.seal is None else SIGNED))
        if r.inputs:
            made = _digests(r.inputs, "What", "Data, packages and plugins that the run was made with.")
            blocks.append(Folded("Digests of data and code", [made]))
        blocks.append(Heading("Files"))
        if r.hashes:
            caption = "What this report was made from, the config with every default. Compare it with yours."
            blocks.append(_digests(r.hashes, "File", caption))
        else:
            blocks.append(Paragraph("No file was hashed, so a changed input would go unnoticed."))
        return [*blocks, *(_seal(result.seal) if result.seal else []), *_config(r.config)]


def _seal(seal: SealRecord) -> list[Block]:
    return [
        Heading("Seal"),
        KeyValues(
            items={
                "Signed by": f"the key with SHA-256 {seal.signer}",
                "At": f"{fmt.date(seal.at)}, by {seal.tool}; counts until {seal.expires}",
                "Verdict": seal.verdict.replace("_", " "),
                "Bar": f"{seal.bar}, by policy {seal.policy}, SHA-256 {seal.policy_digest}",
                "Required": ", ".join(seal.required),
                "Content": seal.content,
            }
        ),
        _digests(seal.digests, "Sealed file", "`fedaudit verify RUN --key KEY.pub.pem` checks the signature."),
    ]


def _digests(found: Mapping[str, str], of: str, caption: str) -> Block:
    rows = [[name, digest] for name, digest in found.items()]
    return Table(header=[of, "SHA-256"], rows=rows, align="ll", widths=[2, 3.4], caption=caption)


def _config(text: str) -> list[Block]:
    if not text.strip():
        return [Paragraph("The configuration was not recorded.")]
    return [Folded("The configuration", [Code(text, language="yaml")])]
