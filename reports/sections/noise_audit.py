"""Noise audit: whether the noise that was drawn is what the ledger says, kind by kind."""

import math
from collections.abc import Sequence

from fedaudit.reports.format import format_measurement, number, sentence_case
from fedaudit.reports.result import AuditResult
from fedaudit.reports.result import NoiseAuditRecord as Record
from fedaudit.reports.section import Block, Bullets, Card, Chart, Heading, Paragraph, Section, Table


class NoiseAudit(Section):
    card = Card(title="Tests of the noise", order=52)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.noise_audits:
            return []
        blocks: list[Block] = [
            Paragraph(
                "The run was played again, and the noise that it drew was tested: how much there is, of which "
                "law, and whether it is fresh and a secret in every message. A test that fails refutes the "
                "bound. Tests that pass found no fault, which is no proof that there is none. What the "
                "bounds are worth, and the replay on neighbouring data, stand in the budget."
            ),
            _summarise(result.noise_audits),
        ]
        for audit in result.noise_audits:
            blocks += [
                Heading(f"{sentence_case(audit.kind.replace('_', ' '))}: {audit.protection}"),
                Paragraph(audit.sentence),
            ]
            if audit.checks:
                passed = {True: "*Passed.*", False: "*Failed.*"}
                blocks.append(
                    Bullets([f"{passed[c.passed]} {sentence_case(c.name)}: {c.text}." for c in audit.checks])
                )
        figures = [f for f in result.figures if not f.finding and f.id.startswith("noise-audit")]
        return [*blocks, *(Chart(f) for f in figures)]


def _summarise(audits: Sequence[Record]) -> Table:
    return Table(
        header=["Artifact", "Claimed", "One release", "Whole run", "At least, measured", "Tests passed"],
        rows=[
            [
                a.kind,
                "none stated" if a.claimed is None else f"declared: {number(a.claimed)}",
                _format_allowance(a.single),
                _format_allowance(a.composed, a.releases),
                "not known" if a.at_least is None else format_measurement(a.at_least),
                f"{sum(c.passed for c in a.checks)} of {len(a.checks)}" if a.checks else "not tested",
            ]
            for a in audits
        ],
        align="lrrrrr",
        widths=[1.6, 1.3, 1.4, 1.7, 1.4, 1.2],
        caption="Epsilon of one kind alone; in brackets how many releases of one client. What is declared is "
        "what the ledger allows if it is true, computed exactly; at least is what the noise that was measured "
        "amounts to, at 97.5 % confidence, where one client moves the values by what the ledger declares. What "
        "the whole run loses, with its status, is in the budget.",
    )


def _format_allowance(epsilon: float, releases: int = 0) -> str:
    """What the ledger allows; infinite where that is refuted."""
    if math.isinf(epsilon):
        return "no limit holds"
    return f"declared: {format_measurement(epsilon)}" + (f" ({releases:,})" if releases else "")
