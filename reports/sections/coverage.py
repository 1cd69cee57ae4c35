"""Coverage: which attack was tried on which artifact, and which artifacts nobody tried."""

from reports.format import OUTCOMES, SEVERITIES
from reports.result import AuditResult, Finding, Outcome
from reports.section import Block, Card, Paragraph, Section, Table


class Coverage(Section):
    card = Card(title="What was attacked", order=35)

    def build(self, result: AuditResult) -> list[Block]:
        attacks = [f for f in result.findings if f.source == "attack"]
        sent = list(dict.fromkeys(e.kind for e in result.exposures))
        if not attacks:
            return [Paragraph("No attack was run: what the parties saw was not tested.")]
        read = [k for k in sent if any(k in f.artifacts for f in attacks)]
        blocks: list[Block] = []
        if read:
            rows = [
                [f.method, *(_cell(f, kind) for kind in read)]
                for f in attacks
                if any(k in read for k in f.artifacts)
            ]
            blocks.append(
                Table(
                    header=["Attack", *read],
                    rows=rows,
                    align="l" * (1 + len(read)),
                    widths=[3.2] + [1.6] * len(read),
                    caption="Attacks by the artifact they read, worst result first; a dot where an attack "
                    "does not read that artifact.",
                )
            )
        untried = [k for k in sent if k not in read]
        if untried:
            blocks.append(
                Paragraph(
                    f"Nothing in this audit attacked {', '.join(f'`{k}`' for k in untried)}. "
                    "That says nothing about what they reveal."
                )
            )
        return blocks


def _cell(finding: Finding, kind: str) -> str:
    if kind not in finding.artifacts:
        return "·"
    if finding.outcome is Outcome.DEMONSTRATED:
        return SEVERITIES[finding.severity]
    return OUTCOMES[finding.outcome]
