"""Findings: each conclusion with its evidence, its limits, and what to do about it."""

from collections.abc import Sequence

from fedaudit.reports import evidence_table
from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity
from fedaudit.reports.section import (
    Block,
    Bullets,
    Card,
    Chart,
    Folded,
    Heading,
    KeyValues,
    Paragraph,
    Section,
    Table,
)


def is_open(finding: Finding) -> bool:
    """A question the audit could not answer; calling its severity "none" would read as good news."""
    unanswered = finding.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILED)
    return unanswered and finding.severity is Severity.NONE


class Findings(Section):
    card = Card(title="Evidence by finding", order=40)

    def build(self, result: AuditResult) -> list[Block]:
        findings = result.findings
        if not findings:
            return [Paragraph("No attack, accountant or lint was run, so nothing was found or ruled out.")]
        blocks: list[Block] = []
        for finding in findings:
            if finding.outcome is not Outcome.NOT_APPLICABLE:
                blocks += _finding(finding, result)
        if not blocks:
            blocks.append(Paragraph("No attack, accountant or lint applied to this federation."))
        return [*blocks, *_not_applicable(findings)]


def _finding(finding: Finding, result: AuditResult) -> list[Block]:
    evidence = [e for e in finding.evidence if e.control == "none"]
    controls = [e for e in finding.evidence if e.control != "none"]
    blocks: list[Block] = [
        Heading(finding.title, badge=None if is_open(finding) else finding.severity, anchor=finding.id),
        Paragraph(f"`{finding.id}`: {fmt.OUTCOMES[finding.outcome].lower()}. {finding.summary}"),
        KeyValues(items=_facts(finding)),
    ]
    figures: list[Block] = [Chart(f) for f in result.figures if f.finding == finding.id]
    shown: list[Block] = []
    numbers: list[Block] = []  # of a curve that paper has as a chart
    if curve := evidence_table.over_samples(finding.evidence):
        (numbers if figures else shown).append(curve)
        controls = [e for e in controls if not evidence_table.on_curve(e)]
    elif evidence:
        shown.append(evidence_table.each(evidence, "Evidence"))
    shown += figures[:1]
    if shown:
        blocks.append(Folded("Evidence", shown, on_paper=True))
    if numbers:
        blocks.append(Folded("Evidence in numbers", numbers))
    if rest := figures[1:]:
        blocks.append(Folded(fmt.plural(len(rest), "more chart"), rest))
    if controls:
        table = evidence_table.each(
            evidence_table.telling(controls),
            "Controls, where the answer is known. A positive control plants a leak that must "
            "be found; a negative one uses data that was never trained on",
        )
        blocks.append(Folded("Controls in numbers", [table]))
    if notes := evidence_table.notes(finding.evidence):
        blocks.append(Folded("Remarks on the measures", [Bullets(notes)]))
    if finding.taxonomy:  # on paper the annex has those of all findings
        near = {True: "nearest ", False: ""}
        ids = {f"{t.catalogue} {t.edition}": near[t.nearest] + ", ".join(t.ids) for t in finding.taxonomy}
        blocks.append(Folded("In published catalogues", [KeyValues(items=ids)]))
    if finding.does_not_show:
        blocks.append(Paragraph(f"*What this does not show.* {fmt.sentence_case(finding.does_not_show)}"))
    if finding.remedy:
        blocks.append(Paragraph(f"*What to do about it.* {fmt.sentence_case(finding.remedy)}"))
    return blocks


def _facts(finding: Finding) -> dict[str, str]:
    facts = {}
    if finding.reason:
        facts["Severity because"] = finding.reason
    if finding.shown_by:
        facts["Shown as well by"] = ", ".join(f"`{i}`" for i in finding.shown_by)
    if finding.part_of:
        facts["The same leak as"] = f"`{finding.part_of}`; it counts once"
    if finding.accusations:
        best = max(finding.accusations, key=lambda a: a.right)
        place = f" for {best.place}" if best.place else ""
        facts["Accusations"] = (
            f"Of those accused of being members {fmt.quantity(best.right, 'fraction')} are{place}, "
            f"where {fmt.quantity(best.prior, 'fraction')} of an adversary's candidates are members."
        )
    if finding.threat:
        facts["Adversary"] = fmt.threat(finding.threat)
    if finding.method:
        facts["Method"] = finding.method + (f" ({finding.reference})" if finding.reference else "")
    if finding.seconds:
        facts["Time taken"] = fmt.duration(finding.seconds)
    return facts


def _not_applicable(findings: Sequence[Finding]) -> list[Block]:
    rows = [[f.method or f.title, f.summary] for f in findings if f.outcome is Outcome.NOT_APPLICABLE]
    if not rows:
        return []
    return [
        Heading("Not applicable"),
        Table(
            header=["Attack", "Why it means nothing here"],
            rows=rows,
            align="ll",
            widths=[1, 2],
            caption="Attacks that were considered and not run. They count neither for nor against.",
        ),
    ]
