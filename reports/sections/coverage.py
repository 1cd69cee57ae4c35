"""Coverage: every artifact, who could read it and what attacked it there; and the attacks that did not run."""

from itertools import groupby

from fedaudit.reports.covered import Coverage as Record
from fedaudit.reports.covered import Covered, Untried
from fedaudit.reports.format import OUTCOMES, SEVERITIES, plural, sentence_case
from fedaudit.reports.result import AuditResult, Outcome
from fedaudit.reports.section import Block, Bullets, Card, Heading, Paragraph, Section, Table

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
        blocks.append(Paragraph(sentence(found)))
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
    """Attacks that apply and did not run, and those that find nothing to read, by reason."""
    blocks: list[Block] = []
    for applies, title in (
        (True, "Attacks that apply and did not run"),
        (False, "Attacks that find nothing to read"),
    ):
        found = sorted((u for u in untried if u.applies == applies), key=lambda u: u.why)
        reasons = groupby(found, key=lambda u: u.why)
        if items := [f"{sentence_case(w)}: {', '.join(f'`{u.attack}`' for u in group)}." for w, group in reasons]:
            blocks += [Heading(title), Bullets(items)]
    return blocks


def sentence(c: Record) -> str:
    """Coverage as a sentence: what ran, and everything that keeps it from being the whole."""
    parts = [f"{c.ran} of {plural(c.applicable, 'applicable attack')} ran"]
    parts.append(f"{c.inconclusive or 'none'} of these {_were(c.inconclusive)} inconclusive")
    if c.failed:
        parts.append(f"{c.failed} failed, which improves no score")
    if left := sum(u.applies for u in c.untried):
        parts.append(f"{left} {_were(left)} left out")
    if c.not_applicable:
        do = "does" if c.not_applicable == 1 else "do"
        parts.append(f"{c.not_applicable} more {do} not apply here")
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
