"""Decision: the word, who answers for the system, the numbers, the worst harms, the options, a place to sign.

A page has room for a fixed number of rows, and texts of others are shortened to what such a row holds.
"""

import re
from collections.abc import Sequence
from typing import Literal

from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.decision import DeploymentDecision as Record
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity
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
MOST_NAMED = 2  # of the harms that do not fit
MOST_LINKED = 2  # findings of a harm
LONGEST = 120  # signs of a cell; of the paragraph on what to do first
LONGEST_HARM, LONGEST_WHOM = 140, 60
LONGEST_OPTION, LONGEST_EFFECT = 130, 185
LONGEST_ADVICE = 400
LONGEST_SENTENCE = 330  # of the banner
NOT_STATED = "not stated"
BOX = "\u2610"
SEVERITY = "What makes a *severity* is on page 2."
UNMEASURED = "not measured; variants: auto measures it"


class Decision(Section):
    card = Card(title="Decision summary", order=1, front=True)

    def build(self, result: AuditResult) -> list[Block]:
        decision = result.decision
        if decision is None:
            return []
        options = _tabulate_options(result)
        notes = " ".join(filter(None, (_explain_effects(result), _name_further_options(result))))
        return [
            Banner(
                title=decision.word.words,
                text=fmt.shorten(decision.sentence, LONGEST_SENTENCE),
                tone=TONES[decision.word],
            ),
            _describe_system(result),
            Numbers([(n.shown, n.text) for n in decision.numbers]),
            Heading("What could happen, and to whom"),
            *_tabulate_risks(decision, MOST_ROWS - len(options.rows) + 1),
            Heading("What must be decided"),
            Paragraph(f"*What to do first.* {fmt.shorten(_advise(result), LONGEST_ADVICE)}"),
            options,
            *([Paragraph(notes, small=True)] if notes else []),
            Blanks(["Decided by", "Role", "Date", "Review by"]),
        ]


def _describe_system(result: AuditResult) -> Table:
    """What the owner states, with every gap named: nothing of it was checked."""
    s = result.system
    stated = {key: (getattr(s, key) or NOT_STATED).rstrip(".") for key in type(s).model_fields}
    people = f"Clients: {stated['clients']}. Data: {stated['data']}."
    rows = [
        ["System", f"{stated['name']}. Purpose: {stated['purpose']}. {people}"],
        [
            "Responsible",
            f"Controller: {stated['controller']}. Author of this audit: {stated['author']}"
            f"{f' ({s.date})' if s.date else ''}. Deployment: {stated['deployment']}.",
        ],
    ]
    return Table(
        header=["About", "Stated by the owner; the audit checked none of it"],
        rows=rows,
        align="ll",
        widths=[1.3, 8.3],
        caption="The system and who is responsible, as its owner states it.",
        numbered=False,
    )


def _tabulate_risks(decision: Record, most: int) -> list[Block]:
    if not decision.risks:
        text = "Nobody is known to be hit by what ran. That is not a proof of privacy."
        return [Paragraph(f"{text} {SEVERITY}")]
    shown = decision.risks[:most]
    blocks: list[Block] = [
        Table(
            header=["What, and who can do it", "At least", "At most", "Severity"],
            rows=[
                [
                    Cell(
                        lead=fmt.shorten(f"{number}. {r.what}{f', by {r.who}' if r.who else ''}.", LONGEST_HARM),
                        note=_count_unnamed(r),
                        links=tuple(filter(None, (r.finding, *r.also)))[:MOST_LINKED],
                    ),
                    Cell(bars=_draw_bars(r), note=fmt.sentence_case(fmt.shorten(r.note, LONGEST_WHOM))),
                    _describe_most(r),
                    Cell(badge=Severity(r.severity)),
                ]
                for number, r in enumerate(shown, 1)
            ],
            align="llll",
            widths=[4.5, 2.7, 1.5, 1.3],
            caption="What was shown, worst first: how many people an attack hit, net of luck, and how many could "
            "be hit by the attacks that ran.",
            numbered=False,
        )
    ]
    text = SEVERITY
    if more := decision.risks[len(shown) :]:
        named = [f"{n}. {r.what} ({r.severity})" for n, r in enumerate(more, len(shown) + 1)]
        names = "; ".join(named[:MOST_NAMED])
        if len(named) > MOST_NAMED:
            names += f"; and {fmt.plural(len(named) - MOST_NAMED, 'other')}"
        party = more[0].who if len({r.who for r in more}) == 1 else ""
        by = f", {'all ' if len(more) > 1 else ''}by {party}," if party else ""
        are = "is" if len(more) == 1 else "are"
        where = f"{fmt.plural(len(more), 'more harm')}{by} {are} in the appendix *Evidence by finding*"
        text = f"{where}: {names}. {text}"
    return [*blocks, Paragraph(text, small=True)]


def _count_unnamed(risk: Risk) -> str:
    """A matrix has a finding of the same harm for every rule and setting, more than a page takes."""
    more = 1 + len(risk.also) - MOST_LINKED
    return f"{fmt.plural(1 + len(risk.also), 'finding')}, such as" if more > 0 else ""


def _draw_bars(risk: Risk) -> tuple[Bar, ...]:
    """How many are hit at least; nothing of what is certain."""
    if not risk.people:
        return ()
    of = f" of {risk.people:,} {risk.unit}" if risk.unit != "% of answers" else risk.unit
    return (Bar(share=min(1.0, risk.at_least / risk.people), text=f"{risk.at_least:,}{of}"),)


def _describe_most(risk: Risk) -> str:
    """How many could be hit at most, by the attacks that ran."""
    if not risk.people:
        return ""
    return "no limit known" if risk.at_most is None else f"{risk.at_most:,} of {risk.people:,}"


def _tabulate_options(result: AuditResult) -> Table:
    """Variants with what was measured of them; without any, the remedies, of which nothing was measured."""
    rows = result.alternatives
    shown = _rank(rows)[:MOST_OPTIONS]
    measured = [[_name_option(r), _describe_option(r, result.decision), _describe_cost(r), BOX] for r in shown]
    if not measured:
        why = "no protection to measure" if result.recommendation else UNMEASURED
        measured = [[_cut(remedy), why, "not measured", BOX] for remedy in _list_remedies(result)]
    lettered = [[f"{chr(65 + i)}. {row[0]}", *row[1:]] for i, row in enumerate(measured)]
    last = f"{chr(65 + len(lettered))}. Deploy as it is"
    decision = result.decision
    harms = len(decision.risks) if decision else 0
    leaves = f"Leaves {('', '1', '1 and 2')[harms] if harms < 3 else f'1 to {harms}'}. " if harms else ""
    against = "Against the policy: until" if decision and decision.word is Word.NOT_READY else "Until"
    now = _describe_cost(rows[0]) if measured and rows else "unchanged"
    return Table(
        header=["Option", f"What its own audit says{' of the harms above' if harms else ''}", "Cost", "Choice"],
        rows=[*lettered, [last, f"{leaves}{against} ______, because ______", now, BOX]],
        align="lllc",
        widths=[2.75, 5.15, 1.45, 0.65],
        caption="The options, with what each costs.",
        numbered=False,
    )


def _cut(text: str, most: int = LONGEST) -> str:
    """As many of the first parts of a sentence as a cell holds, each whole."""
    parts = re.split(r"(?=[;,] (?:or |and )?)", text)
    fitting = [short for n in range(len(parts), 0, -1) if len(short := "".join(parts[:n])) <= most]
    return fitting[0] if fitting else fmt.shorten(text, most)


def _rank(rows: Sequence[Alternative]) -> list[Alternative]:
    """The options without the audited run, the best first."""
    return sorted(rows[1:], key=lambda r: r.place)


def _name_further_options(result: AuditResult) -> str:
    """Options that were tried and have no row, by name, with the word of their own audits."""
    more = _rank(result.alternatives)[MOST_OPTIONS:]
    if not more:
        return ""
    named = "; ".join(f"{r.name} ({r.word.words.lower() if r.word else 'not run to the end'})" for r in more)
    return fmt.shorten(f"*Also tried, ranked below*: {named}.", LONGEST_SENTENCE)


def _advise(result: AuditResult) -> str:
    """What to do first and what it costs, or that no option is recommended."""
    if chosen := next((r for r in result.alternatives if r.recommended), None):
        return f"{result.recommendation} {_describe_price(chosen, result)}"
    if len(result.alternatives) > 1:
        stop = (
            "Do not deploy as configured. " if result.decision and result.decision.word is Word.NOT_READY else ""
        )
        finished = [r for r in _rank(result.alternatives) if r.word is not None]
        first = (
            f"No measured option is enough alone. {_describe_first(finished, result)}"
            if finished
            else "No option was measured: none was run to the end."
        )
        return f"{stop}{first} `fedaudit harden` also tries combinations."
    remedies = _list_remedies(result)
    first = f"{remedies[0]}. " if remedies else ""
    if result.recommendation:
        return f"{first}{result.recommendation}"
    if remedies:
        return f"{first}What this would cost was not measured."
    open_questions = sum(c.is_open for c in result.cells)
    return f"Answer the {fmt.plural(open_questions, 'open question')}." if open_questions else "Nothing."


def _describe_first(ranked: Sequence[Alternative], result: AuditResult) -> str:
    """What the option that ranks first gives, costs and still lacks."""
    option = ranked[0]
    harms = [e for e in option.effects if e.state != "new"]
    unknown = sum(e.state == "open" for e in harms)
    lacking = (
        f"Unknown with it: {unknown} of {fmt.plural(len(harms), 'harm')}" if unknown else "It has open questions"
    )
    lacks: dict[Word | None, str] = {
        Word.NOT_READY: f"It leaves a leak rated {option.severity}.",
        Word.CANNOT_TELL: f"{lacking}, to be tested before it is used.",
    }
    first = f"Option A {_explain_place(ranked)}."
    return f"{first} {_describe_price(option, result)} {lacks.get(option.word, 'It shows no gain.')}"


def _explain_place(ranked: Sequence[Alternative]) -> str:
    """What puts the first option before the second: the first of these in which they differ."""
    if len(ranked) == 1:
        return "is the only one that was measured"
    first, second = ranked[:2]
    if first.eligible and not second.eligible:
        return "is the only one that answers what this audit answers, at a tolerable cost of accuracy"
    if first.word is not second.word:
        doubt = ", which is no sign of safety" if first.word is Word.CANNOT_TELL else ""
        return f'ranks first by its verdict, "{first.word.short if first.word else ""}"{doubt}'
    if first.at_most != second.at_most:
        by = "people who could be exposed"
    elif first.accuracy != second.accuracy:
        by = "accuracy"
    else:
        by = "the time that it takes" if first.time != second.time else "name alone"
    return f"ranks first by {by}, its verdict being no better"


def _describe_price(option: Alternative, result: AuditResult) -> str:
    """What is left and what is paid with an option, each beside the audited run."""
    now, risks = result.alternatives[0], result.decision.risks if result.decision else []
    shown = [e.severity for e in option.effects if e.state in ("left", "new")]
    worst = max(shown, key=lambda s: s.rank, default=Severity.NONE)
    parts = [f"worst harm shown {_contrast(worst, risks[0].severity if risks else Severity.NONE)}"]
    if option.accuracy is not None and now.accuracy is not None:
        change = option.accuracy_change_interval
        loss = f"up to {fmt.points(-change[0], None)} points may be lost" if change and change[0] < 0 else ""
        parts.append(f"accuracy {_contrast(fmt.percent(option.accuracy), fmt.percent(now.accuracy), loss)}")
    else:
        parts.append("accuracy not measured")
    sent, before = _count_bytes(option), _count_bytes(now)
    if sent is not None and before is not None:
        parts.append(f"bytes sent {_contrast(fmt.volume(sent), fmt.volume(before))}")
    return f"With it: {', '.join(parts)}."


def _contrast(own: str, now: str, more: str = "") -> str:
    return f"{own} ({'; '.join(filter(None, ('as now' if own == now else f'now {now}', more)))})"


def _describe_cost(row: Alternative) -> str:
    """Accuracy and bytes, as far as they were measured."""
    sent = _count_bytes(row)
    accuracy = "not measured" if row.accuracy is None else fmt.percent(row.accuracy)
    return accuracy if sent is None else f"{accuracy}, {fmt.volume(sent)}"


def _count_bytes(row: Alternative) -> int | None:
    """What all parties sent, both ways; None where that was not measured."""
    ways = [row.measures.get(f"bytes_{way}") for way in ("up", "down")]
    return None if None in ways else round(sum(w for w in ways if w is not None))


def _name_option(row: Alternative) -> str:
    """Its name and what it does, without the name where what it does begins with it."""
    what = "; ".join([*row.protections, *row.settings])
    if what.startswith(row.name.replace("-", " ")):
        return _cut(fmt.sentence_case(what), LONGEST_OPTION)
    return _cut(f"{row.name}: {what}" if what else row.name, LONGEST_OPTION)


def _describe_option(row: Alternative, decision: Record | None) -> str | Cell:
    """The word of an option's own audit, what becomes of each harm, why it is not recommended, the coverage."""
    if not row.finished or row.word is None:
        return "not run to the end"
    harms = _list_effects(row.effects, decision.risks if decision else [])
    if not harms:
        harms = [f"Worst that was shown: {row.severity}" if row.severity.rank else "Nothing demonstrated"]
    parts = [f"{row.answered} of its {fmt.plural(row.asked, 'question')} answered"]
    if row.at_most is not None:
        parts.append(f"at most {row.at_most:,} of {row.people:,} people")
    if row.bound and row.bound.holds:
        parts.append(f"epsilon {label_bound(row.bound)}, per {row.bound.unit}")
    elif row.bound:
        parts.append("its epsilon is refuted" if row.bound.status is Status.REFUTED else "no mathematical limit")
    # an open harm is why an option whose questions are unanswered is not recommended
    is_said = bool(row.unanswered) and any(e.state == "open" for e in row.effects)
    why = "Recommended." if row.recommended else "" if is_said else row.why_not
    said = f"{'. '.join(harms)}.{f' {why}' if why else ''}"
    text = _cut(f"{said} {fmt.sentence_case('; '.join(parts))}", LONGEST_EFFECT)
    return Cell(lead=row.word.words, text=f"{text.rstrip('.')}.")


def _list_effects(effects: Sequence[HarmEffect], risks: Sequence[Risk]) -> list[str]:
    """Which harms an option stops or leaves, or where neither is known, by their numbers; then new ones."""
    numbers = {r.what: n for n, r in enumerate(risks, 1)}
    rated = {r.what: r.severity for r in risks}
    groups = dict[str, list[str]](Stops=[], Leaves=[], Unknown=[])
    for e in (e for e in effects if e.state != "new" and e.what in numbers):
        number = f"{numbers[e.what]}"
        if e.state == "left":
            milder = "" if e.severity == rated[e.what] else f" (rated {e.severity})"
            groups["Leaves"].append(f"{number}{milder}")
        elif e.state == "stopped":
            groups["Stops"].append(f"{number} (at most {e.at_most:,} people)" if e.at_most else number)
        else:
            groups["Unknown"].append(number)
    named = [f"{name} {', '.join(some) or 'none'}" for name, some in groups.items() if some or name == "Stops"]
    new = [f"{e.what[:1].lower()}{e.what[1:]} ({e.severity})" for e in effects if e.state == "new"]
    return [*(named if any(groups.values()) else []), *([f"New: {'; '.join(new)}"] if new else [])]


def _explain_effects(result: AuditResult) -> str:
    """The words of the options' rows; empty where no option was measured."""
    states = {e.state for r in result.alternatives for e in r.effects}
    if not states:
        return ""
    words = [
        "*Stops*: at most a tolerable number is hit, or what showed it is no longer sent.",
        "*Leaves*: shown again.",
        *(["*Unknown*: neither was shown."] if "open" in states else []),
        *(["*New*: shown only with the option."] if "new" in states else []),
        "*Cost*: accuracy, and bytes without a protection's own traffic, such as keys.",
    ]
    return " ".join(words)


def _list_remedies(result: AuditResult) -> list[str]:
    """What the demonstrated findings ask for, worst first, each once."""
    found = [f for f in result.findings if f.is_demonstrated and f.remedy]
    once = dict.fromkeys(fmt.sentence_case(f.remedy.split(". ")[0].rstrip(".").replace("`", "")) for f in found)
    return list(once)[:MOST_REMEDIES]
