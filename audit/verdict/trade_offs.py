"""Trade-offs: what each option leaves of the audit's questions, what it costs, and which one is recommended.

An option is the audited federation with other protections or settings, attacked anew, with an audit of its own.
Questions are compared one by one, reader and harm; one that an option does not ask is about nothing that is sent.

An option is eligible if it answers all that the audited run answers and costs at most `MOST_COST` of accuracy at
the upper end of the interval. Eligible options are ranked by what their audits answer, then people, then
accuracy, then cost; accuracies within the interval of each other are alike, and the cheaper one comes first. The
first is recommended if it may be deployed and has a better word, or if of every question that the audited run
exposes fewer people are hit at most than the audited run hits at least; otherwise none is.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.audit.case.clock import BY_TIME
from fedaudit.audit.verdict.decision import list_exposed, rate_cell
from fedaudit.audit.verdict.page import count_people
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import choose_bound
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.questions import Cell, Question, describe_limits
from fedaudit.reports.result import Alternative, AuditResult, CellEffect, HarmEffect, Severity

T = TypeVar("T")
MOST_COST = 0.02  # of accuracy, at the upper end of its interval
DEPLOYABLE = (Word.READY, Word.WITH_CONDITIONS)
AS_AUDITED = "as audited"
MOST_NAMED = 2  # questions in a sentence
RUN_AGAIN = "not measured: the federation must be run again with it"
TAKEN = (
    "bytes_up",
    "bytes_down",
    "simulated_time",
    "round_length_mean",
    "round_length_std",
    "jain_index",
    "slow_devices_heard",
)
BEST_FIRST = (Word.READY, Word.WITH_CONDITIONS, Word.CANNOT_TELL, Word.NOT_READY)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the audit of a set of protections came to, as far as it is known."""

    name: str
    word: Word | None  # the decision; None: none was made
    left: int = 0  # answers that forbid a deployment
    people: float  # who can be hit; infinity where nothing limits it
    accuracy: float | None  # of the last model
    interval: tuple[float, float] | None  # around it
    cost: float  # in the unit of all that are compared


def place_word(word: Word | None) -> int:
    """The better the smaller."""
    return BEST_FIRST.index(word) if word else len(BEST_FIRST)


def rank(sets: Iterable[T], stand: Callable[[T], Standing]) -> list[T]:
    """The same, best first; of those that are alike in everything, by name."""
    left = sorted(((stand(one), one) for one in sets), key=lambda e: (*_outcome(e[0]), -_read(e[0]), e[0].name))
    ranked = list[T]()
    while left:
        best = left[0][0]
        least = best.interval[0] if best.interval else _read(best)
        alike = [e for e in left if _outcome(e[0]) == _outcome(best) and _read(e[0]) >= least]
        ranked += [one for _, one in sorted(alike, key=lambda e: (e[0].cost, -_read(e[0]), e[0].name))]
        left = left[len(alike) :]
    return ranked


def _outcome(standing: Standing) -> tuple[float, ...]:
    return place_word(standing.word), standing.left, standing.people


def _read(standing: Standing) -> float:
    """Its accuracy; one that nobody measured is no gain."""
    return standing.accuracy or 0.0


@dataclass(frozen=True, kw_only=True)
class Option:
    """A variant after its run. `correct` has a truth value for each test example, of its last model."""

    name: str
    protections: tuple[str, ...] = ()  # as the config names them
    result: AuditResult | None  # None: not run to the end
    correct: NDArray[np.bool_] | None = None


def compare_options(base: Option, options: Sequence[Option]) -> list[Alternative]:
    """The audited run, then its options; empty without options. Raises ValueError where `base` has no result.

    Accuracies are compared example by example where both kept which answers were correct. Without that, their
    intervals are taken as independent, which is rather too wide.
    """
    if not options:
        return []
    if base.result is None:
        raise ValueError("the audited run has no result to compare with")
    rows = [_summarise(base, base.result, base)]
    rows += [
        Alternative(
            name=o.name, protections=list(o.protections), finished=False, why_not="It was not run to the end."
        )
        if o.result is None
        else _summarise(o, o.result, base)
        for o in options
    ]
    _summarise_cost(rows, [o.result for o in (base, *options)])
    recommend(rows, base.result)
    return rows


def compare_cells(main: AuditResult, result: AuditResult) -> list[CellEffect]:
    """How every question of the audited run stands with an option."""
    own = {c.id: c for c in result.cells}
    return [_compare_cell(cell, own.get(cell.id)) for cell in main.cells]


def _compare_cell(cell: Cell, own: Cell | None) -> CellEffect:
    """Of the model a missing question was merely not asked again."""
    if own is not None:
        return CellEffect(cell=cell.id, state=own.state.value, limits=describe_limits(own))
    if isinstance(cell, Question):
        return CellEffect(cell=cell.id, state="unasked", limits="not sent")
    return CellEffect(cell=cell.id, state="open", limits="not run again")


def compare_harms(main: AuditResult, result: AuditResult) -> list[HarmEffect]:
    """What an option does to each row of page 1, in its order; then rows that only its audit has.

    A harm is left where the option's audit shows it too. It is stopped where every question that showed it is
    clear with the option, or nothing of it is sent any more. It is open where neither holds: an attack that
    cannot be repeated proves nothing.
    """
    if main.decision is None or result.decision is None:
        return []
    again = {own.what: own for own in result.decision.risks}
    effects = []
    for risk in main.decision.risks:
        if (own := again.get(risk.what)) is not None:
            effects.append(HarmEffect(what=risk.what, state="left", severity=Severity(own.severity)))
        else:
            effects.append(_find_stopped(risk, main, result))
    known = {risk.what for risk in main.decision.risks}
    new = [own for own in result.decision.risks if own.what not in known]
    return effects + [HarmEffect(what=r.what, state="new", severity=Severity(r.severity)) for r in new]


def _find_stopped(risk: Risk, main: AuditResult, result: AuditResult) -> HarmEffect:
    """Whether a row that an option's audit does not show is stopped, and how many people a limit leaves."""
    compared = {e.cell: e for e in compare_cells(main, result)}
    shown = [compared[c] for c in risk.cells if c in compared]
    if not shown or not all(e.state in ("clear", "unasked") for e in shown):
        return HarmEffect(what=risk.what, state="open")
    own = {q.id: q for q in result.questions}
    most = [q.at_most for e in shown if (q := own.get(e.cell)) is not None and q.at_most is not None]
    return HarmEffect(what=risk.what, state="stopped", at_most=max(most, default=None))


def recommend(rows: Sequence[Alternative], main: AuditResult) -> None:
    """Fill in `eligible`, `recommended`, `why_not` and `place` of options; the audited run is the first row."""
    base = rows[0]
    exposed = {q.id: q.at_least for q in list_exposed(main.questions) if isinstance(q, Question)}
    for row in rows[1:]:
        row.eligible = row.finished and not (reason := _explain_ineligible(row))
        row.why_not = row.why_not if not row.finished else reason
    ranked = rank((r for r in rows[1:] if r.eligible), _stand)
    for place, row in enumerate(ranked):
        if place:
            row.why_not = f"{ranked[0].name} ranks before it."
        elif not (reason := _explain_no_gain(row, base, exposed)):
            row.recommended = True
        else:
            row.why_not = reason
    order = sorted(rank(rows[1:], _stand), key=lambda r: (not r.recommended, not r.eligible, not r.finished))
    for place, row in enumerate(order):
        row.place = place


def summarise_recommendation(rows: Sequence[Alternative]) -> str:
    """Which option is recommended and why, or why none is, as one or two sentences; empty without options."""
    if len(rows) < 2:
        return ""
    chosen = next((r for r in rows[1:] if r.recommended), None)
    if chosen is None:
        return " ".join(["None recommended.", *(f"{r.name}: {r.why_not}" for r in rows[1:])])
    if _is_better(chosen.word, rows[0].word):
        assert chosen.word and rows[0].word
        return f"{chosen.name} is recommended. Its audit says: {chosen.word.words}."
    return (
        f"{chosen.name} is recommended. With it at most "
        f"{fmt.plural(chosen.at_most or 0, 'person', 'people')} could "
        "be hit where the audited run exposes people, which is fewer than it hits at least."
    )


def _summarise(option: Option, result: AuditResult, base: Option) -> Alternative:
    assert base.result is not None
    main, is_base = base.result, option is base
    cells = compare_cells(main, result)
    answered = {c.id: c for c in main.cells if c.is_answered}
    limits = {q.id: q for q in result.questions}
    asked = [limits[q.id] for q in list_exposed(main.questions) if q.id in limits]
    at_most = None if any(q.at_most is None for q in asked) else max((q.at_most or 0 for q in asked), default=0)
    people = count_people(result)
    row = Alternative(
        name=option.name,
        protections=result.scope.protections,
        settings=[] if is_base else _describe_settings(main.scope.training, result.scope.training),
        word=result.decision.word if result.decision else None,
        answered=sum(c.is_answered for c in result.cells),
        asked=len(result.cells),
        at_most=at_most,
        people=max((q.people for q in result.questions), default=0),
        surely_hit=people.at_least,
        limit=people.at_most,
        unanswered=[
            fmt.name_question(answered[e.cell]) for e in cells if e.state == "open" and e.cell in answered
        ],
        severity=max((rate_cell(c) for c in result.cells), key=lambda s: s.rank, default=Severity.NONE),
        bound=choose_bound(result.bounds, "server"),
        effects=[] if is_base else compare_harms(main, result),
        cells=cells,
        time=result.summary_metrics.get("simulated_time"),
    )
    _fill_accuracy(row, option, result, base, main)
    return row


def _fill_accuracy(
    row: Alternative, option: Option, result: AuditResult, base: Option, main: AuditResult
) -> None:
    row.accuracy, before = (r.summary_metrics.get("accuracy_final") for r in (result, main))
    if row.accuracy is None:
        return
    tests = len(base.correct) if base.correct is not None else 0
    if tests:
        row.accuracy_interval = stats.wilson(row.accuracy * tests, tests)
    if option is base or before is None:
        return
    row.accuracy_change = row.accuracy - before
    if not tests:
        return
    if option.correct is not None and base.correct is not None and len(option.correct) == tests:
        new, old = option.correct, base.correct
        cells = (int((a & b).sum()) for a, b in ((new, old), (new, ~old), (~new, old), (~new, ~old)))
        row.accuracy_change_interval = stats.paired_difference(*cells).interval
    else:
        found = stats.difference(round(row.accuracy * tests), tests, round(before * tests), tests)
        row.accuracy_change_interval = found.interval


def _explain_ineligible(row: Alternative) -> str:
    """Why an option cannot be recommended whatever it leaves; empty where it can."""
    if not row.answered:
        return "No question was answered with it."
    if row.unanswered:
        open_ = list(dict.fromkeys(row.unanswered))
        named = ", ".join(open_[:MOST_NAMED])
        if (more := len(open_) - MOST_NAMED) > 0:
            named += f" and {fmt.plural(more, 'other')}"
        return f"Without an answer: {named}."
    if row.accuracy_change is None or row.accuracy_change_interval is None:
        return f"Its accuracy is {RUN_AGAIN}."
    cost = -row.accuracy_change_interval[0]
    if cost > MOST_COST:
        return f"It may cost {100 * cost:.1f} points of accuracy; {100 * MOST_COST:.0f} are tolerable."
    return ""


def _stand(row: Alternative) -> Standing:
    """By its word, people, accuracy and simulated time; the change of accuracy has the narrower interval."""
    around = row.accuracy_interval
    if row.accuracy is not None and row.accuracy_change is not None and row.accuracy_change_interval is not None:
        before = row.accuracy - row.accuracy_change
        around = before + row.accuracy_change_interval[0], before + row.accuracy_change_interval[1]
    return Standing(
        name=row.name,
        word=row.word,
        people=math.inf if row.at_most is None else row.at_most,
        accuracy=row.accuracy,
        interval=around,
        cost=math.inf if row.time is None else row.time,
    )


def _is_better(word: Word | None, than: Word | None) -> bool:
    """Whether a word allows a deployment that the other does not, or with fewer conditions.

    *Cannot tell* is never better: it only says that something is not known.
    """
    return word in DEPLOYABLE and place_word(word) < place_word(than)


def _explain_no_gain(row: Alternative, base: Alternative, exposed: Mapping[str, int]) -> str:
    """Why an eligible option is no improvement that was shown; empty where it is one."""
    if place_word(row.word) > place_word(base.word):
        return "Its verdict is worse than that of the audited run."
    if _is_better(row.word, base.word):
        return ""
    if not exposed:
        return "No gain is shown: the word is no better, and the audited run exposes no person."
    if row.at_most is None:
        return (
            "No gain is shown: nothing limits how many people could still be hit where the audited "
            "run exposes them."
        )
    if row.at_most < min(exposed.values()):
        return ""
    return (
        f"No gain is shown: where the audited run exposes people, it could still hit {row.at_most:,}; as "
        "audited at "
        f"least {min(exposed.values()):,} are hit."
    )


def _summarise_cost(rows: Sequence[Alternative], results: Sequence[AuditResult | None]) -> None:
    """What each run took, with the simulated time until it was as good as all of them were at their best."""
    ended = [(row, result) for row, result in zip(rows, results, strict=True) if result is not None]
    level = min((r.summary_metrics.get("accuracy_best", 0.0) for _, r in ended), default=0.0)
    for row, result in ended:
        row.measures = {k: v for k, v in result.summary_metrics.items() if k in TAKEN}
        curve = next((f.series[0] for f in result.figures if f.id == BY_TIME), None)
        if curve is not None and level:
            good = [x for x, y in zip(curve.x, curve.y, strict=True) if y >= 100 * level]
            row.measures |= {"level": level} | ({"time_to_level": good[0]} if good else {})


def _describe_settings(main: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Settings of the method in words; of a group of settings, those that differ."""
    changed = []
    for name, value in own.items():
        parts, before = value.split(", "), main.get(name, "").split(", ")
        if parts != before:
            changed.append(f"{name}: {', '.join(p for p in parts if p not in before) or value}")
    return changed
