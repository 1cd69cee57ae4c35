"""The pages one signs, from the questions, the harms and the options: every sentence and number of theirs.

The first number is of people; "at least" is L and "at most" is U, never an estimate. A sentence reassures only
where a question is clear. No id, no rule and no key of a config stands here: appendices have them.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from fedaudit.attacks import stats
from fedaudit.audit.verdict.answers import answer_signer, define_words
from fedaudit.audit.verdict.page_options import drop_marks, list_options, recommend_option
from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.page import MOST_FACES, Coverage, Fill, Odds, Page, PageHarm, People, ReaderRow, Strip
from fedaudit.reports.questions import Cell, Question, RuleQuestion, State
from fedaudit.reports.result import AuditResult, Severity

MOST_HARMS = 8  # with a row of their own
MOST_BLAMED = 3  # rows that the banner names
MOST_ROWS = 9  # of harms and of clear questions
LONGEST_FACT = 96  # signs that a row holds
# Rows of a gallery that are of the person, of what the attacker made, and of who saw no message
ORIGINALS = ("original (a member)", "original")
MADE = ("reconstruction", "condensed")
GUESSES = ("class mean", "class mean of auxiliary data")
PICKS = "lookup"  # the attack that draws nothing: it picks of its own images
# What a reader does, after its name
HARMS = {
    Harm.RECORD: "Finds a person's record in a message",
    Harm.RECONSTRUCTION: "Rebuilds a person's record",
    Harm.MEMBERSHIP: "Recognises a person as training data",
    Harm.DIFFUSE: "Guesses who took part",
    Harm.ATTRIBUTE: "Learns a fact about a person",
    Harm.CLIENT_FACT: "Learns facts about a client's data",
    Harm.LINKAGE: "Traces a person to a client",
}
LOSSES = {
    Aim.AVAILABILITY: "Make answers wrong",
    Aim.TARGETED: "Make answers on one class wrong",
    Aim.BACKDOOR: "Plant a trigger for their own answer",
    Aim.INTEGRITY: "Make answers wrong by false claims",
    Aim.DROPOUT: "Cost answers by staying away",
}
# What counts as hit, beside each harm of a row
NOTES = {
    Harm.RECORD: "a value that only this person's data explain",
    Harm.RECONSTRUCTION: "fits this person better than anybody else",
    Harm.MEMBERSHIP: "one false alarm in a hundred people",
    Harm.DIFFUSE: "one false alarm in ten people",
    Harm.ATTRIBUTE: "of one person, or of fewer than five",
    Harm.CLIENT_FACT: "which classes, or how many examples",
    Harm.LINKAGE: "names the right one of all clients",
}
HEADS = {
    Harm.RECORD: "exact record",
    Harm.RECONSTRUCTION: "record rebuilt",
    Harm.MEMBERSHIP: "training data",
    Harm.DIFFUSE: "took part",
    Harm.ATTRIBUTE: "personal fact",
    Harm.CLIENT_FACT: "client fact",
    Harm.LINKAGE: "link to client",
}
CERTAIN = "Seen or proved"  # whose rows are findings, not attacks on people


def write_page(
    result: AuditResult,
    word: Word,
    rule: str,
    risks: Sequence[Risk],
    left: Sequence[Cell],
    forbidding: Collection[str],
    judge: str = "",
) -> Page:
    """Both pages of an audit whose word, harms and missing answers are known.

    `forbidding` are ids of questions and findings that forbid a deployment; `judge` names another's policy.
    """
    harms = [_write_harm(r, result) for r in risks]
    shown, rest = harms[:MOST_HARMS], harms[MOST_HARMS:]
    people = count_people(result, harms)
    severities = [h.severity for h in harms]
    return Page(
        sentence=_write_sentence(word, rule, result, harms, people, left, _blame_rows(risks, forbidding)),
        people=people,
        scope=_describe_scope(result),
        harms=shown,
        summary=_summarise(harms),
        strip=[(s.value, severities.count(s)) for s in Severity if s in severities],
        more=f"and {len(rest):,} more, at most {rest[0].severity}" if rest else "",
        bar=f"{judge}{_name_forbidding(risks, forbidding)}",
        bounded=_list_clear(result)[: max(1, MOST_ROWS - len(shown))],
        pictures=_choose_pictures(result, risks),
        coverage=_count_states(result.cells),
        options=list_options(result, word, shown, people),
        recommendation=recommend_option(result, word, shown),
        against=_describe_exception(word),
        answers=answer_signer(result, word, left),
        columns=[HEADS[h] for h in _list_columns(result)],
        readers=_tabulate_readers(result, risks),
        words=define_words(result),
    )


def count_people(result: AuditResult, harms: Iterable[PageHarm] = ()) -> People:
    """How many people are hit at least, at any harm, and at most, at each that the policy asks about."""
    asked = [q for q in result.questions if q.harm is not Harm.CLIENT_FACT]
    least = max([0, *(q.surely_hit for q in asked), *(h.at_least for h in harms if h.unit == "people")])
    needed = [q for q in asked if q.required]
    is_limited = bool(needed) and all(q.has_limit or not q.people for q in needed)
    most = max([least, *(q.at_most or 0 for q in needed)]) if is_limited else None
    return People(at_least=least, at_most=most, of=max((q.people for q in asked), default=0))


def _describe_scope(result: AuditResult) -> str:
    s = result.scope
    parts = [
        s.method,
        fmt.plural(s.clients, "client"),
        fmt.plural(s.rounds, "round"),
        f"model {drop_marks(s.model)}",
    ]
    return ", ".join(p for p in parts if p)


def name_fact(title: str) -> str:
    """What was seen or proved, in the words of a row, without the name of a run; its rule stands first."""
    named = re.sub(r"^[\w-]+, rule ([\w-]+): ", r"\1: ", title)
    return fmt.shorten(drop_marks(fmt.sentence_case(named)), LONGEST_FACT)


def _write_sentence(
    word: Word,
    rule: str,
    result: AuditResult,
    harms: Sequence[PageHarm],
    people: People,
    left: Sequence[Cell],
    blamed: str,
) -> str:
    """The one sentence of the banner; `blamed` are rows that forbid a deployment, where others do not."""
    needed = sum(c.required for c in result.cells)
    missing = (
        f"{len(left):,} of {fmt.plural(needed, 'required answer')} {'is' if len(left) == 1 else 'are'} missing"
    )
    ends = {
        Word.NOT_READY: "the policy forbids deployment" + (f" for {blamed}" if blamed else ""),
        Word.CANNOT_TELL: missing if left else "no required question was asked",
        Word.WITH_CONDITIONS: "what page 1 lists must be treated, or accepted in writing",
        Word.READY: "the policy tolerates that",
    }
    end = ends[word]
    if rule == "required":
        end = "a requirement of the reviewer is not met"
    if people.at_least:
        worst = max((h for h in harms if h.unit == "people"), key=lambda h: h.at_least, default=None)
        to = f" to {_put_inside(worst.reader)}" if worst else ""
        return f"At least {_expose(people.at_least, people.of)}{to}, and {end}."
    if word in (Word.READY, Word.WITH_CONDITIONS) and people.at_most is not None and people.of:
        return f"At most {_expose(people.at_most, people.of)} to what was tested, and {end}."
    lost = [h for h in harms if h.unit == "answers"]
    if lost and word is Word.NOT_READY:
        return f"{lost[0].reader} cost the model at least {lost[0].least} of its answers, and {end}."
    if word is Word.NOT_READY:
        return (
            f"What is stated of the federation does not hold, and {end}." if not harms else _blame(harms[0], end)
        )
    if word is Word.CANNOT_TELL and people.of:
        return f"It could be all {people.of:,} people: {end}."
    return f"{fmt.sentence_case(end)}."


def _blame(worst: PageHarm, end: str) -> str:
    return f"{worst.what.rstrip('.')}, and {end}."


def _expose(number: int, of: int) -> str:
    return f"{number:,} of {of:,} people {'is' if number == 1 else 'are'} exposed"


def _put_inside(reader: str) -> str:
    return f"{reader[:1].lower()}{reader[1:]}"


def _summarise(harms: Sequence[PageHarm]) -> str:
    """How many harms were shown, and by whom where that is one reader."""
    if not harms:
        return ""
    readers = list(dict.fromkeys(_put_inside(h.reader) for h in harms if h.reader != CERTAIN))
    by = (
        f", {'all ' if len(harms) > 1 else ''}by {readers[0]}"
        if len(readers) == 1 and all(h.reader != CERTAIN for h in harms)
        else ""
    )
    return f"{fmt.plural(len(harms), 'harm')}{by}"


def _find_forbidding(risks: Sequence[Risk], forbidding: Collection[str]) -> list[str]:
    """Rows of page 1 that forbid a deployment."""
    return [str(n) for n, r in enumerate(risks[:MOST_HARMS], 1) if {r.finding, *r.also, *r.cells} & {*forbidding}]


def _blame_rows(risks: Sequence[Risk], forbidding: Collection[str]) -> str:
    """The few rows that forbid a deployment, where others do not; empty elsewhere."""
    rows = _find_forbidding(risks, forbidding)
    return _name_rows(rows) if 0 < len(rows) <= MOST_BLAMED and len(rows) < len(risks) else ""


def _name_forbidding(risks: Sequence[Risk], forbidding: Collection[str]) -> str:
    """Which rows of page 1 forbid a deployment, as a sentence."""
    rows = _find_forbidding(risks, forbidding)
    if not rows:
        return ""
    said = f"{_name_rows(rows)} forbid{'s' if len(rows) == 1 else ''} deployment"
    return f"Only {said}." if len(rows) < len(risks) else f"{fmt.sentence_case(said)}."


def _name_rows(rows: Sequence[str]) -> str:
    return f"harm{'' if len(rows) == 1 else 's'} {fmt.join_words(rows)}"


# --- rows of harms -----------------------------------------------------------------------------------


def _write_harm(risk: Risk, result: AuditResult) -> PageHarm:
    """A row, by the reader who can do most; who else can is in its note."""
    cells = {c.id: c for c in result.cells}
    shown = [cells[c] for c in risk.cells if c in cells]
    units = {"people": "people", "clients": "clients", "% of answers": "answers"}
    row = PageHarm(
        reader=CERTAIN,
        what=risk.what,
        unit=units.get(risk.unit, ""),  # type: ignore[arg-type]
        at_least=risk.at_least,
        at_most=risk.at_most,
        of=risk.people,
        severity=risk.severity,
    )
    if not shown:
        return row.model_copy(update={"note": drop_marks(f"by {risk.who}" if risk.who else "")})
    first = shown[0]
    if isinstance(first, RuleQuestion):
        is_absent = first.aim is Aim.DROPOUT
        share = f"{fmt.percent(first.malicious)} of clients" if first.malicious else ""
        note = ", ".join(filter(None, (share, drop_marks(f"rule {first.rule}") if not is_absent else "")))
        reader = "Absent clients" if is_absent else "Malicious clients"
        return row.model_copy(update={"reader": reader, "note": note})
    assert isinstance(first, Question)
    others = list(dict.fromkeys(fmt.name_observer(c.observer) for c in shown[1:] if isinstance(c, Question)))
    return row.model_copy(
        update={
            "reader": fmt.sentence_case(fmt.name_observer(first.observer)),
            "note": _note(first, others),
            "odds": _measure_odds(first),
        }
    )


def _note(q: Question, others: Sequence[str]) -> str:
    """Where or how it was shown, in at most ten words."""
    if q.groups and q.surely_hit > q.at_least:
        return _cut_words(f"in {q.groups[0].name}", 10)
    text = NOTES[q.harm]
    if q.harm is Harm.CLIENT_FACT:
        return f"at {q.at_least:,} of {q.people:,} clients at least"
    also = f"{text}; {others[0]} too" if len(others) == 1 else f"{text}; others too" if others else text
    return also if len(also.split()) <= 10 else text


def _measure_odds(q: Question) -> Odds | None:
    """How often the attack that decides hits somebody, beside what it hits by luck."""
    if not q.tested or q.luck is None:
        return None
    low, high = stats.wilson(q.hits, q.tested)
    return Odds(value=q.hits / q.tested, low=low, high=high, guess=q.luck)


def _cut_words(text: str, most: int) -> str:
    words = text.split()
    return text if len(words) <= most else f"{' '.join(words[:most])} …"


def _list_clear(result: AuditResult) -> list[PageHarm]:
    """Clear questions, one row a harm, by the readers for whom it is clear, with the largest of their limits."""
    rows = []
    for harm in Harm:
        clear = [q for q in result.questions if q.harm is harm and q.state is State.CLEAR]
        if not clear:
            continue
        q = max(clear, key=lambda q: q.at_most or 0)
        who = [fmt.name_observer(x.observer) for x in clear]
        rows.append(
            PageHarm(
                reader=fmt.sentence_case(fmt.join_words(list(dict.fromkeys(who)))),
                what=HARMS[harm],
                note=q.earned,
                unit="clients" if harm is Harm.CLIENT_FACT else "people",
                at_most=q.at_most,
                of=q.people,
                at_least=q.surely_hit,
            )
        )
    return rows


# --- questions ---------------------------------------------------------------------------------------


def find_fill(cell: Cell) -> Fill:
    """How a question stands, as the pages draw it."""
    if cell.state is State.EXPOSED:
        return "exposed"
    if cell.state is State.CLEAR:
        return "clear"
    return "cannot" if isinstance(cell, Question) and cell.cannot_test else "open"


def _count_states(cells: Sequence[Cell]) -> Coverage:
    fills = [find_fill(c) for c in cells]
    needed = [find_fill(c) for c in cells if c.required]
    states: tuple[Fill, ...] = ("exposed", "clear", "open", "cannot")
    missing = sum(c.is_open for c in cells)
    lack = "none is missing" if not missing else f"{missing:,} {'is' if missing == 1 else 'are'} missing"
    return Coverage(
        title=f"{fmt.plural(len(cells), 'question')}, and what is known",
        states={s: fills.count(s) for s in states},
        required={s: needed.count(s) for s in states},
        text=f"The policy requires {fmt.plural(len(needed), 'answer')}; {lack}."
        if cells
        else "No question was asked.",
    )


def _list_columns(result: AuditResult) -> list[Harm]:
    return [h for h in Harm if any(q.harm is h for q in result.questions)]


def _tabulate_readers(result: AuditResult, risks: Sequence[Risk]) -> list[ReaderRow]:
    numbers = {c: n for n, r in enumerate(risks[:MOST_HARMS], 1) for c in r.cells}
    words = {"exposed": "exposed", "clear": "clear", "open": "open", "cannot": "cannot test"}
    rows = []
    for observer in dict.fromkeys(q.observer for q in result.questions):
        own = {q.harm: q for q in result.questions if q.observer == observer}
        cells: list[tuple[Fill | str, str]] = []
        for harm in _list_columns(result):
            if (q := own.get(harm)) is None:
                cells.append(("", "not a question"))
                continue
            fill = find_fill(q)
            at = f": {numbers[q.id]}" if q.id in numbers else ""
            cells.append((fill, f"{words[fill]}{at}"))
        rows.append(ReaderRow(reader=fmt.sentence_case(fmt.name_observer(observer)), cells=cells))  # type: ignore[arg-type]
    return rows


def _describe_exception(word: Word) -> str:
    return f"To deploy{' against the policy' if word in (Word.NOT_READY, Word.CANNOT_TELL) else ''}: option"


# --- pictures ----------------------------------------------------------------------------------------


def _choose_pictures(result: AuditResult, risks: Sequence[Risk]) -> Strip | None:
    """The gallery of the worst attack whose people may be seen: them, what the attacker made, and a guess."""
    shown = {f.id: f.severity.rank for f in result.findings if f.severity.rank}
    found = [(n, g) for n, g in enumerate(result.galleries) if g.finding in shown and _find_row(g, ORIGINALS)]
    if not found:
        return None
    number, gallery = max(found, key=lambda e: (shown[e[1].finding], -e[0]))
    made, guess = _find_row(gallery, MADE), _find_row(gallery, GUESSES)
    if not made:
        return None
    is_match = gallery.finding == PICKS
    names = {"original": _find_row(gallery, ORIGINALS), "match" if is_match else "redrawn": made, "guess": guess}
    many = min(MOST_FACES, len(gallery.rows[made]))
    people = {1: "One person", 8: "Eight people"}.get(many, f"{many} people")
    rows = [n for n, r in enumerate(risks[:MOST_HARMS], 1) if gallery.finding in {r.finding, *r.also}]
    of = f"Harm {rows[0]}. " if rows else ""
    by = "the nearest image that the attacker owned" if is_match else "what the attacker made of messages"
    return Strip(
        title=f"{people}, and the attacker's best {'match' if is_match else 'drawing'}",
        gallery=number,
        rows={k: v for k, v in names.items() if v},
        caption=f"{of}{'Match' if is_match else 'Redrawn'}: {by}. Guess: the average of the class.",
    )


def _find_row(gallery: Gallery, names: Sequence[str]) -> str:
    return next((n for n in names if n in gallery.rows), "")
