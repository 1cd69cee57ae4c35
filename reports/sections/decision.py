"""Decision: the word, three numbers, what could happen to whom, the options, and a place to sign."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import Decision as Record
from fedaudit.reports.decision import Odds, Risk, Word
from fedaudit.reports.result import Alternative, AuditResult, Severity
from fedaudit.reports.section import (
    Banner,
    Bar,
    Blanks,
    Block,
    Card,
    Cell,
    Heading,
    Numbers,
    Paragraph,
    Section,
    Table,
    words,
)

TONES: dict[Word, Literal["stop", "wait", "care", "go"]] = {
    Word.READY: "go",
    Word.WITH_CONDITIONS: "care",
    Word.NOT_READY: "stop",
    Word.CANNOT_TELL: "wait",
}
MOST_OPTIONS = 4
MOST_NAMED = 4  # of the findings that do not fit
ROOM, LINE, GAP = 131.0, 3.4, 1.4  # mm of page 1 for the rows of both tables; a line's height; a row's own
LONG_TITLE, SECOND_LINE = 44, 11.0  # signs that fit the title's line; mm of one more
ADVICE = 9.0  # mm of the sentence that recommends an option
SIGNS = {"what": 30, "whom": 27, "option": 42, "effect": 34}  # on a line of these columns
BOX = "\u2610"
UNMEASURED = "not measured; variants: auto measures it"


class Decision(Section):
    card = Card(title="Decision summary", order=1, front=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        options = _options(result)
        return [
            Banner(title=decision.word.words, text=decision.sentence, tone=TONES[decision.word]),
            Numbers([(n.shown, n.text) for n in decision.numbers]),
            Heading("What could happen, and to whom"),
            *_risks(decision, _room(result) - sum(_tall(o[0], "option", o[1], "effect") for o in options.rows)),
            Heading("What must be decided"),
            *_advise(result),
            options,
            Blanks(["Decided by", "Role", "Date", "Review by"]),
        ]


def _tall(left: str | Cell, one: str, right: str | Cell, other: str, least: int = 1) -> float:
    """About how high a row is, by the two cells that decide it."""
    lines = max(-(-len(words(left)) // SIGNS[one]), -(-len(words(right)) // SIGNS[other]), least)
    return lines * LINE + GAP


def _room(result: AuditResult) -> float:
    advice = ADVICE if _advise(result) else 0.0
    return ROOM - advice - SECOND_LINE * (-(-len(result.title) // LONG_TITLE) - 1)


def _fitting(risks: Sequence[Risk], room: float) -> int:
    """How many of the rows fit; never none."""
    tall = [
        _tall(f"{r.what} {r.who} {', '.join([r.finding, *r.also])}", "what", r.whom, "whom", len(r.odds) + 1)
        for r in risks
    ]
    return max(1, sum(total <= room for total in accumulate(tall)))


def _risks(decision: Record, room: float) -> list[Block]:
    if not decision.risks:
        return [Paragraph("Nothing was demonstrated by what ran. That is not a proof of privacy.")]
    shown = decision.risks[: _fitting(decision.risks, room)]
    blocks: list[Block] = [
        Table(
            header=["Finding", "Whom it touches", "How often it succeeds", "Severity"],
            rows=[
                [
                    Cell(lead=f"{r.what}{f', by {r.who}' if r.who else ''}.", links=(r.finding, *r.also)),
                    r.whom,
                    Cell(bars=tuple(_bar(o) for o in r.odds), note=_beside(r)),
                    Cell(badge=Severity(r.severity)),
                ]
                for r in shown
            ],
            align="llll",
            widths=[2.7, 2.3, 3.7, 1.3],
            caption="What was demonstrated, worst first; findings of the same harm share a row.",
            numbered=False,
        )
    ]
    if more := decision.risks[len(shown) :]:
        text = "; ".join(f"{r.what[:1].lower()}{r.what[1:]} ({r.severity})" for r in more[:MOST_NAMED])
        text += f"; and {len(more) - MOST_NAMED} others" if len(more) > MOST_NAMED else ""
        blocks.append(Paragraph(f"{len(more)} more, each in the appendix: {text}."))
    return blocks


def _bar(odds: Odds) -> Bar:
    where = ""
    if odds.group is not None:
        where = f" in groups of {odds.group:,.0f}"
    guess = "" if odds.guess is None else f" (guess {fmt.percent(odds.guess)})"
    return Bar(share=min(1.0, max(0.0, odds.value)), text=f"{fmt.percent(odds.value)}{where}{guess}")


def _beside(risk: Risk) -> str:
    best = next((o for o in risk.odds if o.graded), None)
    if best is None or best.interval is None:
        return fmt.sentence_case(risk.note)
    return f"uncertainty of the first: {fmt.interval(best.interval, 'fraction')}"


def _options(result: AuditResult) -> Table:
    """Variants with what was measured of them; without any, the remedies, of which nothing was measured."""
    rows = result.alternatives
    measured = [[_named(r), _effect(r), _cost(r, rows[0]), BOX] for r in rows[1:][:MOST_OPTIONS]]
    if not measured:
        why = "no protection to measure" if result.recommendation else UNMEASURED
        measured = [[remedy, why, "not measured", BOX] for remedy in _remedies(result)]
    lettered = [[f"{chr(65 + i)}. {row[0]}", *row[1:]] for i, row in enumerate(measured)]
    last = f"{chr(65 + len(lettered))}. Accept the risk until ____________, because"
    return Table(
        header=["Option", "Its own audit", "Accuracy", "Choice"],
        rows=[*lettered, [last, "", "unchanged", BOX]],
        align="lllc",
        widths=[4.0, 3.4, 1.7, 0.8],
        caption="Options, each with its own audit and its cost.",
        numbered=False,
    )


def _advise(result: AuditResult) -> list[Block]:
    """Which option is recommended; nothing where none was asked for."""
    if len(result.alternatives) > 1 and not any(r.recommended for r in result.alternatives):
        return [Paragraph("None of these options is recommended; each row says why.")]
    return [Paragraph(result.recommendation)] if result.recommendation else []


def _named(row: Alternative) -> str:
    what = "; ".join([*row.protections, *row.settings])
    return f"{row.name}: {what}" if what else row.name


def _effect(row: Alternative) -> str | Cell:
    """The word and the coverage of an option's own audit, the people left, and why it is not recommended."""
    if not row.finished or row.word is None:
        return "not run to the end"
    parts = [f"{row.answered} of {fmt.plural(row.asked, 'question')} answered"]
    if row.at_most is not None and row.people:
        parts.append(f"at most {row.at_most:,} of {row.people:,} people")
    if row.bound and row.bound.holds:
        parts.append(f"epsilon {label_bound(row.bound)}, per {row.bound.unit}")
    elif row.bound and row.bound.status is Status.REFUTED:
        parts.append("its epsilon is refuted")
    text = f"{fmt.sentence_case('; '.join(parts))}. {'Recommended.' if row.recommended else row.why_not}"
    return Cell(lead=row.word.words, text=text.strip())


def _cost(row: Alternative, audited: Alternative) -> str:
    if row.accuracy is None or audited.accuracy is None:
        return "not measured"
    return f"{fmt.percent(audited.accuracy)} \u2192 {fmt.percent(row.accuracy)}"


def _remedies(result: AuditResult) -> list[str]:
    """What the demonstrated findings ask for, worst first, each once."""
    found = [f for f in result.findings if f.is_demonstrated and f.remedy]
    once = dict.fromkeys(fmt.sentence_case(f.remedy.split(". ")[0].rstrip(".").replace("`", "")) for f in found)
    return list(once)[:MOST_OPTIONS]
