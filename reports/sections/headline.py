"""Headline: the worst finding, how much of the plan ran, and every finding on one page."""

from reports.covered import Coverage
from reports.format import OUTCOMES, SEVERITIES, plural
from reports.result import AuditResult, Outcome, Severity
from reports.section import Block, Bullets, Callout, Card, Heading, Paragraph, Section, Table
from reports.sections.findings import is_open


class Headline(Section):
    card = Card(title="Headline", order=10)

    def build(self, result: AuditResult) -> list[Block]:
        headline = result.headline
        blocks: list[Block] = [
            Callout(
                title=_title(headline.severity, headline.outcome),
                text=headline.sentence,
                severity=headline.severity,
            ),
            Paragraph(coverage(headline.coverage)),
        ]
        shown = [f for f in result.findings if f.outcome is not Outcome.NOT_APPLICABLE]
        if shown:
            rows = [
                [f.title, "open" if is_open(f) else SEVERITIES[f.severity], OUTCOMES[f.outcome], f.source]
                for f in shown
            ]
            blocks.append(
                Table(
                    header=["Finding", "Severity", "Outcome", "From"],
                    rows=rows,
                    align="llll",
                    widths=[6, 1.1, 1.8, 1.4],
                    caption="All findings that apply, worst first. Severity is set by the policy "
                    "printed in this report. An open row is a question without an answer, not good news.",
                )
            )
        else:
            blocks.append(Paragraph("No attack, accountant or lint applied, so there is no finding."))
        return [
            *blocks,
            Heading("What this audit does not say"),
            Bullets(
                [
                    "It never says *safe*. An attack that showed nothing bounds that attack, with "
                    "those trials and that knowledge; a stronger adversary may do better.",
                    "*Inconclusive* is not *nothing found*: the attack missed a leak that was "
                    "planted for it, or had too few trials to tell.",
                    "Severity ranks findings by a policy with stated reasons. It is no measure of "
                    "legal or organisational risk.",
                ]
            ),
        ]


def _title(severity: Severity, outcome: Outcome) -> str:
    if outcome is Outcome.DEMONSTRATED:
        return "Worst finding"
    if severity is Severity.NONE and outcome is Outcome.NOT_DEMONSTRATED:
        return "No finding was demonstrated by the attacks that ran"
    return f"Worst finding ({OUTCOMES[outcome].lower()})"


def coverage(c: Coverage) -> str:
    """Coverage as a sentence: what ran, and everything that keeps it from being the whole."""
    parts = [f"{c.ran} of {plural(c.applicable, 'applicable attack')} ran"]
    parts.append(f"{c.inconclusive or 'none'} of these {_were(c.inconclusive)} inconclusive")
    if c.failed:
        parts.append(f"{c.failed} failed, which improves no score")
    if left := sum(u.applies for u in c.untried):
        parts.append(f"{left} {_were(left)} left out")
    if c.not_applicable:
        do = "does" if c.not_applicable == 1 else "do"
        parts.append(f"{c.not_applicable} more {do} not apply here, for the reasons given below")
    text = "; ".join(parts) + "."
    telling = [a for a in c.artifacts if a.status != "tells_nothing"]
    if not telling:
        return text
    attacked = [a for a in telling if a.status in ("attacked", "elsewhere")]
    bare = list(dict.fromkeys(a.kind for a in telling if a not in attacked))
    text += f" Of {plural(len(telling), 'artifact')} (a kind and who could read it), {len(attacked)} "
    text += f"{_were(len(attacked))} attacked"
    return text + (f"; not {', '.join(f'`{k}`' for k in bare)}." if bare else ".")


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
