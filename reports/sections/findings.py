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

MOST_ROWS = 6  # of evidence on paper
MOST_PRINTED = 8  # demonstrated findings on paper in full, the worst; a screen has all


class Findings(Section):
    card = Card(title="Evidence by finding", order=40)

    def build(self, result: AuditResult) -> list[Block]:
        findings = result.findings
        if not findings:
            return [Paragraph("No attack, accountant or lint was run, so nothing was found or ruled out.")]
        blocks: list[Block] = []
        audits = {a.id: a.kind for a in result.noise_audits}
        consistent = [
            f.id for f in findings if f.id in audits and f.outcome is Outcome.RAN and not f.severity.rank
        ]
        told = [f for f in findings if f.outcome is not Outcome.NOT_APPLICABLE and f.id not in consistent]
        shown = [f for f in told if f.is_demonstrated][:MOST_PRINTED]
        for finding in shown:
            blocks += _finding(finding, result)
        if rest := [f for f in told if f not in shown]:
            blocks += [Heading("Other findings"), _list_others(rest)]
            blocks.append(Folded("Each of them", [b for f in rest for b in _finding(f, result)]))
        if consistent:
            kinds = ", ".join(audits[name] for name in consistent)
            blocks.append(Paragraph(f"No test contradicts the noise on {kinds}: see *Tests of the noise*."))
        if not blocks:
            blocks.append(Paragraph("No attack, accountant or lint applied to this federation."))
        return [*blocks, *_not_applicable(findings)]


def _finding(finding: Finding, result: AuditResult) -> list[Block]:
    title = Heading(
        finding.title, badge=None if finding.severity is Severity.NONE else finding.severity, anchor=finding.id
    )
    said = f"`{finding.id}`: {finding.account}"
    figures: list[Block] = [Chart(f) for f in result.figures if f.finding == finding.id]
    if finding.is_demonstrated:
        drawn = int(finding.severity.rank >= Severity.HIGH.rank and bool(figures))  # on paper
        shown, numbers = _evidence(finding, drawn=bool(drawn))
        return [
            title,
            Paragraph(said),
            KeyValues(items=_facts(finding)),
            *_fold("Evidence", [*shown, *figures[:drawn]], on_paper=True),
            *_fold("Evidence in numbers", numbers),
            *_fold(fmt.plural(len(figures) - drawn, "more chart"), figures[drawn:]),
            *_details(finding),
            *_advice(finding),
        ]
    # on paper, what showed nothing, or shows a leak that counts already, is a paragraph
    why = f"It shows the same leak as {finding.part_of} and counts once." if finding.part_of else ""
    shown, numbers = _evidence(finding, drawn=bool(figures))
    inside = [KeyValues(items=_facts(finding)), *shown, *figures, *numbers, *_details(finding), *_advice(finding)]
    return [title, Paragraph(f"{said} {why}".rstrip()), Folded("Evidence", inside)]


def _list_others(findings: Sequence[Finding]) -> Table:
    """A line each of what showed nothing, shows a leak that counts already, or is milder than what is told."""
    rows = [
        [f.id, _end(f.title), f.severity.value if f.severity.rank else fmt.OUTCOMES[f.outcome]] for f in findings
    ]
    return Table(
        header=["Finding", "What was found", "Severity"],
        rows=rows,
        align="lll",
        widths=[2, 6, 1],
        caption="Findings that are in full on the screen alone. What they do not show can happen all the same.",
    )


def _fold(name: str, blocks: Sequence[Block], *, on_paper: bool = False) -> list[Block]:
    return [Folded(name, [*blocks], on_paper=on_paper)] if blocks else []


def _evidence(finding: Finding, *, drawn: bool) -> tuple[list[Block], list[Block]]:
    """What is shown of the evidence, and the numbers of a curve that a chart shows."""
    if curve := evidence_table.over_samples(finding.evidence):
        return ([], [curve]) if drawn else ([curve], [])
    evidence = [e for e in finding.evidence if e.control == "none"]
    if len(evidence) > MOST_ROWS:
        most = evidence_table.tabulate_each(
            evidence_table.telling(evidence)[:MOST_ROWS], "The strongest evidence"
        )
        return [most], [evidence_table.tabulate_each(evidence, "Evidence at every place")]
    return ([evidence_table.tabulate_each(evidence, "Evidence")] if evidence else []), []


def _details(finding: Finding) -> list[Block]:
    """Controls, remarks and catalogues; a screen shows them when asked for."""
    blocks: list[Block] = []
    controls = [e for e in finding.evidence if e.control != "none"]
    if evidence_table.over_samples(finding.evidence):
        controls = [e for e in controls if not evidence_table.on_curve(e)]
    if controls:
        table = evidence_table.tabulate_each(
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
    return blocks


def _advice(finding: Finding) -> list[Block]:
    blocks: list[Block] = []
    if finding.does_not_show:
        blocks.append(Paragraph(f"*What this does not show.* {_end(fmt.sentence_case(finding.does_not_show))}"))
    if finding.remedy:
        blocks.append(Paragraph(f"*What to do about it.* {_end(fmt.sentence_case(finding.remedy))}"))
    return blocks


def _end(text: str) -> str:
    return f"{text.rstrip('.')}."


def _facts(finding: Finding) -> dict[str, str]:
    facts = {}
    if finding.shown_by:
        facts["Also shown by"] = ", ".join(finding.shown_by)
    if finding.part_of:
        facts["The same leak as"] = f"{finding.part_of}; it counts once"
    if finding.threat:
        facts["Adversary"] = fmt.threat(finding.threat)
    if finding.method:
        facts["Method"] = finding.method + (f" ({finding.reference})" if finding.reference else "")
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
