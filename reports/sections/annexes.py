"""Annexes: what a data-protection impact assessment and a technical documentation quote, from the findings."""

from collections.abc import Sequence

from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult, Finding, Outcome
from fedaudit.reports.section import Blanks, Block, Card, Heading, KeyValues, Paragraph, Section


class Annexes(Section):
    card = Card(title="Annexes for the file", order=95)

    def build(self, result: AuditResult) -> list[Block]:
        if result.decision is None:
            return []
        return [
            Heading("For a data-protection impact assessment"),
            Paragraph(
                "EDPB Opinion 28/2024 asks whether personal data can be extracted from a "
                "model or obtained by queries, with means reasonably likely to be used. Tests of reconstruction, "
                "of membership and of attributes are evidence for that; no test is proof of anonymity."
            ),
            Paragraph("By reader, what was shown and what is open: the table of page 2."),
            Blanks(["Advice of the data-protection officer", "Residual risk accepted by", "Date and signature"]),
            Heading("For the technical documentation (AI Act, Annex IV, 2 (g) and (h))"),
            KeyValues(items=_technical(result)),
            Blanks(["Responsible person", "Date and signature"]),
        ]


def _technical(result: AuditResult) -> dict[str, str]:
    """Of what Annex IV lists, all that no other page of this report says."""
    attacks = [f for f in result.findings if f.source in ("attack", "robustness")]
    facts = {
        "Tests": f"{fmt.plural(sum(f.outcome is Outcome.RAN for f in attacks), 'attack')} ran; "
        "log: evidence/ in the run folder",
        "Cybersecurity": "; ".join(result.scope.protections) or "no protection of messages was configured",
    }
    if named_by := _catalogues(result.findings):
        facts["Catalogues"] = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in named_by.items())
    return facts


def _catalogues(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """What published catalogues call the demonstrated findings, edition by edition."""
    found: dict[str, list[str]] = {}
    for f in findings:
        for taxon in f.taxonomy if f.severity.rank else ():
            near = " (nearest)" if taxon.nearest else ""
            ids = found.setdefault(f"{taxon.catalogue} {taxon.edition}{near}", [])
            ids += [i for i in taxon.ids if i not in ids]
    return found
