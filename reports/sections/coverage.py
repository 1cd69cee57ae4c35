"""Coverage: every artifact, who could read it and what attacked it there; and the attacks that did not run."""

from itertools import groupby

from reports.covered import Covered, Untried
from reports.format import OUTCOMES, SEVERITIES
from reports.result import AuditResult, Outcome
from reports.section import Block, Bullets, Card, Heading, Paragraph, Section, Table

_STATUS = {
    "attacked": "",
    "elsewhere": "Not from here",
    "failed": "Failed",
    "not_run": "Not attacked",
    "not_applicable": "Not attacked",
    "unread": "Not attacked",
    "tells_nothing": "Tells nothing",
}


class Coverage(Section):
    card = Card(title="What was attacked", order=35)

    def build(self, result: AuditResult) -> list[Block]:
        found = result.headline.coverage
        blocks: list[Block] = []
        if not found.ran:
            blocks.append(Paragraph("No attack ran: what the parties saw was not tested."))
        if found.artifacts:
            blocks.append(
                Table(
                    header=["Artifact", "Read by", "Result", "Attacked by, or why not"],
                    rows=[_row(c, result) for c in found.artifacts],
                    align="llll",
                    widths=[2.2, 1.3, 1.6, 5],
                    caption="Everything that was sent, by who could read it. Attacked is what an attack opened "
                    "in this run and makes a claim about; what it only used as a help does not count.",
                )
            )
        if bare := [c for c in found.artifacts if c.status not in ("attacked", "elsewhere", "tells_nothing")]:
            names = ", ".join(dict.fromkeys(f"`{c.kind}` ({_party(c)})" for c in bare))
            text = f"Nothing in this audit attacked {names}. That says nothing about what they reveal."
            blocks.append(Paragraph(text))
        return [*blocks, *_untried(found.untried)]


def _row(c: Covered, result: AuditResult) -> list[str]:
    worst = [f for f in result.findings if f.id in c.attacks]  # findings are worst first
    if c.status == "attacked" and worst:
        top = worst[0]
        shown = SEVERITIES[top.severity] if top.outcome is Outcome.DEMONSTRATED else OUTCOMES[top.outcome]
        return [c.kind, _party(c), shown, ", ".join(c.attacks)]
    why = f"{c.why}: {', '.join(c.attacks)}" if c.attacks else c.why
    return [c.kind, _party(c), _STATUS[c.status], why]


def _party(c: Covered) -> str:
    return c.party.replace("_", " ")


def _untried(untried: list[Untried]) -> list[Block]:
    """Attacks that apply and did not run, one row each; those that do not apply, by reason."""
    blocks: list[Block] = []
    if rows := [[u.title, u.attack, u.why] for u in untried if u.applies]:
        blocks.append(Heading("Attacks that apply and did not run"))
        caption = "A leak that only these would find is not in this report."
        header = ["Attack", "Name", "Because"]
        blocks.append(Table(header=header, rows=rows, align="lll", widths=[4, 2.6, 4], caption=caption))
    others = sorted((u for u in untried if not u.applies), key=lambda u: u.why)
    if others:
        blocks.append(Heading("Attacks that find nothing to read here"))
        reasons = groupby(others, key=lambda u: u.why)
        blocks.append(Bullets([f"{why}: {', '.join(f'`{u.attack}`' for u in found)}." for why, found in reasons]))
    return blocks
