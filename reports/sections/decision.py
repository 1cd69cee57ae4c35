"""Decision: the word, who answers for the system, the numbers, the worst harms, the options, a place to sign.

A page has room for a fixed number of rows, and texts of others are shortened to what such a row holds.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import Literal

from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import DeploymentDecision as Record
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
)

TONES: dict[Word, Literal["stop", "wait", "care", "go"]] = {
    Word.READY: "go",
    Word.WITH_CONDITIONS: "care",
    Word.NOT_READY: "stop",
    Word.CANNOT_TELL: "wait",
}
MOST_ROWS = 5  # of harms and options together, options first
MOST_OPTIONS = 3  # with a row of their own; further ones are named
MOST_REMEDIES = 2
MOST_NAMED = 2  # of the findings that do not fit
MOST_LINKED = 2  # findings of a harm
LONGEST = 120  # signs of a cell; of the paragraph on what to do first
LONGEST_WHOM = 60
LONGEST_OPTION, LONGEST_EFFECT = 145, 230
LONGEST_ADVICE = 260
LONGEST_SENTENCE = 330  # of the banner
NOT_STATED = "not stated"
BOX = "\u2610"
UNMEASURED = "not measured; variants: auto measures it"
NO_LIMIT = "no upper limit of people"


class Decision(Section):
    card = Card(title="Decision summary", order=1, front=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        options = _options(result)
        return [
            Banner(
                title=decision.word.words,
                text=_shorten(decision.sentence, LONGEST_SENTENCE),
                tone=TONES[decision.word],
            ),
            _describe_system(result),
            Numbers([(n.shown, n.text) for n in decision.numbers]),
            Heading("What could happen, and to whom"),
            *_risks(decision, MOST_ROWS - len(options.rows) + 1),
            Heading("What must be decided"),
            Paragraph(f"*What to do first.* {_shorten(_advise(result), LONGEST_ADVICE)}"),
            options,
            *_further_options(result),
            Blanks(["Decided by", "Role", "Date", "Review by"]),
        ]


def _shorten(text: str, most: int = LONGEST) -> str:
    return textwrap.shorten(text, most, placeholder=" \u2026")


def _describe_system(result: AuditResult) -> Table:
    """What the owner states, with every gap named: nothing of it was checked."""
    s = result.system
    stated = {key: (getattr(s, key) or NOT_STATED).rstrip(".") for key in type(s).model_fields}
    rows = [
        ["System", f"{stated['name']}. Purpose: {stated['purpose']}."],
        ["Clients and data", f"Clients: {stated['clients']}. Data: {stated['data']}."],
        [
            "Responsible",
            f"Controller: {stated['controller']}. Author of this audit: {stated['author']}"
            f"{f' ({s.date})' if s.date else ''}. Deployment: {stated['deployment']}.",
        ],
    ]
    return Table(
        header=["About", "As the owner states it; the audit checked none of this"],
        rows=rows,
        align="ll",
        widths=[2.2, 7.4],
        caption="The system and who is responsible, as its owner states it.",
        numbered=False,
    )


def _explain_severity(decision: Record) -> str:
    """What a severity means for the decision; the policy has the rule of each."""
    bar = f"{decision.bar} or worse forbids deployment" if decision.bar else "none forbids deployment"
    return f"*Severity* follows the policy: {bar}, anything less must be treated or accepted in writing."


def _explain_most(risks: Sequence[Risk]) -> str:
    """How the numbers of a table of harms go with the one above it."""
    limited = any(r.whom[:1].isdigit() for r in risks)
    return "*People at most* limits that harm alone. " if limited else ""


def _risks(decision: Record, most: int) -> list[Block]:
    if not decision.risks:
        text = "Nothing was demonstrated by what ran. That is not a proof of privacy."
        return [Paragraph(f"{text} {_explain_severity(decision)}")]
    shown = decision.risks[:most]
    blocks: list[Block] = [
        Table(
            header=["What, and who can do it", "People at most", "How often an attempt succeeds", "Severity"],
            rows=[
                [
                    Cell(
                        lead=_shorten(f"{r.what}{f', by {r.who}' if r.who else ''}."),
                        note=_count_unnamed(r),
                        links=(r.finding, *r.also)[:MOST_LINKED],
                    ),
                    _shorten(r.whom, LONGEST_WHOM),
                    Cell(bars=tuple(_bar(o) for o in r.odds if o.graded), note=_describe_baseline(r)),
                    Cell(badge=Severity(r.severity)),
                ]
                for r in shown
            ],
            align="llll",
            widths=[3.6, 1.3, 3.8, 1.3],
            caption="What was demonstrated, worst first; findings of the same harm share a row.",
            numbered=False,
        )
    ]
    text = _explain_most(shown) + _explain_severity(decision)
    if more := decision.risks[len(shown) :]:
        names = "; ".join(f"{r.what[:1].lower()}{r.what[1:]} ({r.severity})" for r in more[:MOST_NAMED])
        names += f"; and {fmt.plural(len(more) - MOST_NAMED, 'other')}" if len(more) > MOST_NAMED else ""
        text = f"{fmt.plural(len(more), 'more harm')}, each in the appendix: {names}. {text}"
    return [*blocks, Paragraph(text)]


def _count_unnamed(risk: Risk) -> str:
    """A matrix has a finding of the same harm for every rule and setting, more than a page takes."""
    more = 1 + len(risk.also) - MOST_LINKED
    return f"{fmt.plural(1 + len(risk.also), 'finding')}, such as" if more > 0 else ""


def _bar(odds: Odds) -> Bar:
    where = ""
    if odds.group is not None:
        where = f" if a message is of {fmt.plural(round(odds.group), 'example')}"
    guess = "" if odds.guess is None else f" (guessing {fmt.percent(odds.guess)})"
    return Bar(share=min(1.0, max(0.0, odds.value)), text=f"{fmt.percent(odds.value)}{where}{guess}")


def _describe_baseline(risk: Risk) -> str:
    best = next((o for o in risk.odds if o.graded), None)
    if best is None or best.interval is None:
        return fmt.sentence_case(risk.note)
    own = fmt.interval(best.interval, "fraction")
    if best.replayed:
        replayed = fmt.interval(best.replayed, "fraction")
        return f"95 % interval: {replayed}, by replays; this run has too few such messages ({own})"
    return f"95 % interval: {own}"


def _options(result: AuditResult) -> Table:
    """Variants with what was measured of them; without any, the remedies, of which nothing was measured."""
    rows = result.alternatives
    shown = _rank(rows)[:MOST_OPTIONS]
    measured = [[_name_option(r), _effect(r), _cost(r), BOX] for r in shown]
    if not measured:
        why = "no protection to measure" if result.recommendation else UNMEASURED
        measured = [[_cut(remedy), why, "not measured", BOX] for remedy in _remedies(result)]
    lettered = [[f"{chr(65 + i)}. {row[0]}", *row[1:]] for i, row in enumerate(measured)]
    last = f"{chr(65 + len(lettered))}. Deploy as it is"
    forbidden = bool(result.decision and result.decision.failing)
    until = f"{'against the policy: ' if forbidden else ''}until __________, because ____________"
    now = _cost(rows[0]) if measured and rows else "unchanged"
    return Table(
        header=["Option", "What its own audit says", "Accuracy", "Choice"],
        rows=[*lettered, [last, until, now, BOX]],
        align="lllc",
        widths=[3.2, 5.0, 1.0, 0.8],
        caption="The options, with what each costs.",
        numbered=False,
    )


def _cut(text: str, most: int = LONGEST) -> str:
    """As many of the first parts of a sentence as a cell holds, each whole."""
    parts = re.split(r"(?=[;,] (?:or |and )?)", text)
    fitting = [short for n in range(len(parts), 0, -1) if len(short := "".join(parts[:n])) <= most]
    return fitting[0] if fitting else _shorten(text, most)


def _rank(rows: Sequence[Alternative]) -> list[Alternative]:
    """The options without the audited run, the best first."""
    return sorted(rows[1:], key=lambda r: r.place)


def _further_options(result: AuditResult) -> list[Block]:
    """Options that were tried and have no row, by name, with the word of their own audits."""
    more = _rank(result.alternatives)[MOST_OPTIONS:]
    if not more:
        return []
    named = "; ".join(f"{r.name} ({r.word.words.lower() if r.word else 'not run to the end'})" for r in more)
    text = f"*Also tried, and ranked below these.* {named}."
    return [Paragraph(_shorten(text, LONGEST_SENTENCE))]


def _advise(result: AuditResult) -> str:
    """What to do first and what it costs, or that no option is recommended."""
    if any(r.recommended for r in result.alternatives):
        return result.recommendation
    if len(result.alternatives) > 1:
        stop = "Do not deploy as configured. " if result.decision and result.decision.failing else ""
        first = _describe_first(_rank(result.alternatives)[0], result.alternatives[0])
        return f"{stop}No measured option is enough alone. {first}"
    remedies = _remedies(result)
    first = f"{remedies[0]}. " if remedies else ""
    if result.recommendation:
        return f"{first}{result.recommendation}"
    if remedies:
        return f"{first}What this would cost was not measured."
    open_questions = sum(q.is_open for q in result.questions)
    return f"Answer the {fmt.plural(open_questions, 'open question')}." if open_questions else "Nothing."


def _describe_first(option: Alternative, now: Alternative) -> str:
    """What an option that ranks first costs and still lacks."""
    lacks = {
        Word.NOT_READY: f"but leaves a leak rated {option.severity}",
        Word.CANNOT_TELL: "but its open questions have to be answered before it is used",
    }
    why = lacks.get(option.word, "but shows no gain") if option.word else "but was not run to the end"
    cost = f" (accuracy {_cost(option)}, now {_cost(now)})" if option.accuracy is not None else ""
    return f"A ranks first{cost}, {why}. `fedaudit harden` also tries combinations."


def _name_option(row: Alternative) -> str:
    what = "; ".join([*row.protections, *row.settings])
    return _cut(f"{row.name}: {what}" if what else row.name, LONGEST_OPTION)


def _effect(row: Alternative) -> str | Cell:
    """The word and the coverage of an option's own audit, the people left, and why it is not recommended."""
    if not row.finished or row.word is None:
        return "not run to the end"
    parts = [
        f"worst that was shown: {row.severity}" if row.severity.rank else "nothing demonstrated",
        f"{row.answered} of {fmt.plural(row.asked, 'question')} answered",
        f"at most {row.at_most:,} of {row.people:,} people" if row.at_most is not None else NO_LIMIT,
    ]
    if row.bound and row.bound.holds:
        parts.append(f"epsilon {label_bound(row.bound)}, per {row.bound.unit}")
    elif row.bound:
        parts.append("its epsilon is refuted" if row.bound.status is Status.REFUTED else "no epsilon")
    text = f"{fmt.sentence_case('; '.join(parts))}. {'Recommended.' if row.recommended else row.why_not}"
    return Cell(lead=row.word.words, text=_shorten(text, LONGEST_EFFECT))


def _cost(row: Alternative) -> str:
    return "not measured" if row.accuracy is None else fmt.percent(row.accuracy)


def _remedies(result: AuditResult) -> list[str]:
    """What the demonstrated findings ask for, worst first, each once; what leaks before what has no bound."""
    found = [f for f in result.findings if f.is_demonstrated and f.remedy]
    failing = result.decision.failing if result.decision else []
    found.sort(key=lambda f: f.source == "accountant" and f.id not in failing)
    once = dict.fromkeys(fmt.sentence_case(f.remedy.split(". ")[0].rstrip(".").replace("`", "")) for f in found)
    return list(once)[:MOST_REMEDIES]
