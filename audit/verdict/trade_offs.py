"""Trade-offs: what each option leaves of the audit's questions, what it costs, and which one is recommended.

An option is the audited federation with other protections or settings, attacked anew, with an audit of its own.
Questions are compared in pairs, by observer and harm: where an artifact is no longer sent, whatever its observer
reads in its place must be answered. A question that an option leaves unanswered keeps the state and the bound of
the audited run, so an option gains nothing by not being attacked.

An option is eligible if it answers all that the audited run answers and costs at most `MOST_COST` of accuracy at
the upper end of the interval. Eligible options are ranked by word, people, accuracy and time. The first one is
recommended if it may be deployed and has a better word, or if the people that it exposes at most are fewer than
those the audited run exposes at least; otherwise none is.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.audit.verdict.aims import is_same_harm
from fedaudit.audit.verdict.trade_changes import describe_settings, measure_changes, summarise_cost
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import choose_bound
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity

MOST_COST = 0.02  # of accuracy, at the upper end of its interval
BEST_FIRST = (Word.READY, Word.WITH_CONDITIONS, Word.CANNOT_TELL, Word.NOT_READY)
DEPLOYABLE = (Word.READY, Word.WITH_CONDITIONS)
AS_AUDITED = "as audited"
MOST_NAMED = 2  # questions in a sentence
RUN_AGAIN = "not measured: the federation must be run again with it"


@dataclass(frozen=True, kw_only=True)
class Option:
    """A variant after its run. `correct` has a truth value for each test example, of its last model."""

    name: str
    protections: tuple[str, ...] = ()  # as the config names them
    result: AuditResult | None  # None: not run to the end
    correct: NDArray[np.bool_] | None = None


class Comparison(NamedTuple):
    """What an option leaves of the questions that the audited run answers."""

    at_most: int | None  # people whom the worst of them could expose; None: nothing bounds it
    demonstrated: (
        int | None
    )  # people whom all that the audited run demonstrates could expose together; None: as above
    unanswered: list[Question]  # of the audited run, without an answer here


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
    summarise_cost(rows, [o.result for o in (base, *options)])
    recommend(rows, count_shown(base.result))
    return rows


def compare_questions(base: Sequence[Question], option: Sequence[Question]) -> Comparison:
    """Pair the questions that `base` answers with those of an option, by observer and harm.

    Bounds of several harms add where they are taken together.
    """
    worst: dict[tuple[str, str], float] = {}
    shown, unanswered = set[tuple[str, str]](), []
    for question in (q for q in base if q.is_answered):
        group = (question.observer, question.aim.value)
        instead = _find_counterparts(question, base, option)
        if instead is not None and all(q.is_answered for q in instead):
            bound = max(map(_read_bound, instead), default=0.0)
        else:
            unanswered.append(question)
            bound = _read_bound(question)
        if question.aim.is_against_people:
            worst[group] = max(worst.get(group, 0), bound)
            if question.state == "demonstrated":
                shown.add(group)
    return Comparison(
        at_most=_count_people(max(worst.values(), default=0.0)),
        demonstrated=_count_people(sum(worst[g] for g in shown)),
        unanswered=unanswered,
    )


def compare_harms(main: AuditResult, result: AuditResult) -> list[HarmEffect]:
    """What an option does to each harm of the audited run, in its order; then harms that only its audit shows.

    A harm is left where the option's audit shows it too: the same harm by the same party, or one of its findings.
    It is stopped where all that was demonstrated of it is bounded with the option, or is not sent any more and
    nothing takes its place. It is open where neither holds: an attack that cannot be repeated proves nothing.
    """
    if main.decision is None or result.decision is None:
        return []
    effects, matched = [], set[str]()
    for risk in main.decision.risks:
        findings = _list_findings(risk, main)
        again = [
            own
            for own in result.decision.risks
            if (own.what, own.who) == (risk.what, risk.who) or findings & _list_findings(own, result)
        ]
        if again:
            worst = max((Severity(own.severity) for own in again), key=lambda s: s.rank)
            effects.append(HarmEffect(finding=risk.finding, state="left", severity=worst))
        else:
            state, most = _find_stopped(findings, main.questions, result.questions)
            effects.append(HarmEffect(finding=risk.finding, state=state, at_most=most))
        matched |= {own.finding for own in again}
    return effects + [
        HarmEffect(finding=own.finding, state="new", severity=Severity(own.severity), what=own.what)
        for own in result.decision.risks
        if own.finding not in matched
    ]


def _list_findings(risk: Risk, result: AuditResult) -> set[str]:
    """Ids of all findings of a harm, those that show the same leak included."""
    leading = {risk.finding, *risk.also}
    return leading | {i for f in result.findings if f.id in leading for i in f.shown_by}


def _find_stopped(
    findings: Collection[str], base: Sequence[Question], option: Sequence[Question]
) -> tuple[Literal["stopped", "partly stopped", "open"], int | None]:
    """How much of a harm that an option's audit does not show is stopped, and how many people a bound leaves."""
    shown = [q for q in base if q.state is State.DEMONSTRATED and not {*q.findings}.isdisjoint(findings)]
    instead = [_find_counterparts(q, base, option) for q in shown]
    stopped = [_is_stopped(q, new) for q, new in zip(shown, instead, strict=True)]
    if not any(stopped):
        return "open", None
    asked = {i for q in shown for i in q.findings}
    if not all(stopped) or not asked.issuperset(findings):
        return "partly stopped", None
    return "stopped", max(
        (q.at_most for new in instead for q in new or () if q.at_most is not None), default=None
    )


def _is_stopped(question: Question, instead: Sequence[Question] | None) -> bool:
    """Whether what takes the place of an artifact is bounded, or nothing does; of the model the matrix was merely
    not run again then."""
    if not instead:
        return instead is not None and question.aim.is_against_people
    return all(q.state is State.BOUNDED for q in instead)


def recommend(rows: Sequence[Alternative], exposed: int) -> None:
    """Fill in `eligible`, `recommended`, `why_not` and `place` of options; the audited run is the first row.

    `exposed` are the people whom the audited run exposes at least.
    """
    base = rows[0]
    for row in rows[1:]:
        row.eligible = row.finished and not (reason := _explain_ineligible(row))
        row.why_not = row.why_not if not row.finished else reason
    ranked = sorted((r for r in rows[1:] if r.eligible), key=_rank)
    for place, row in enumerate(ranked):
        if place:
            row.why_not = f"{ranked[0].name} ranks before it."
        elif not (reason := _explain_no_gain(row, base, exposed)):
            row.recommended = True
        else:
            row.why_not = reason
    order = sorted(rows[1:], key=lambda r: (not r.recommended, not r.eligible, not r.finished, *_rank(r)))
    for place, row in enumerate(order):
        row.place = place


def summarise_recommendation(rows: Sequence[Alternative], exposed: int) -> str:
    """Which option is recommended and why, or why none is, as one or two sentences; empty without options."""
    if len(rows) < 2:
        return ""
    chosen = next((r for r in rows[1:] if r.recommended), None)
    if chosen is None:
        return " ".join(["None recommended.", *(f"{r.name}: {r.why_not}" for r in rows[1:])])
    if _is_better(chosen.word, rows[0].word):
        assert chosen.word and rows[0].word
        return f"{chosen.name} is recommended. Its audit says: {chosen.word.words}."
    assert chosen.demonstrated_at_most is not None
    return (
        f"{chosen.name} is recommended. By what was demonstrated it could expose at most "
        f"{fmt.plural(chosen.demonstrated_at_most, 'person', 'people')}; as audited at least {exposed:,} are."
    )


def count_shown(result: AuditResult) -> int:
    """People whom the audit shows to be exposed, at least."""
    return result.people.interval[0] if result.people else 0


def _find_counterparts(
    question: Question, base: Sequence[Question], option: Sequence[Question]
) -> list[Question] | None:
    """What asks the same of an option: of the same artifact, or of what its observer reads in that one's place.

    Empty where nothing takes its place; None where something does of which the harm is not asked.
    """
    read = [q for q in option if q.observer == question.observer]
    if same := [q for q in read if (q.aim, q.kind) == (question.aim, question.kind)]:
        # rounds that are a question of their own count here unless the audited run asks them apart as well
        asked = {q.id for q in base}
        return [q for q in same if q.id == question.id or q.id not in asked] or same
    before = {q.kind for q in base if q.observer == question.observer}
    new = [q for q in read if q.kind not in before]
    return [q for q in new if is_same_harm(q.aim, question.aim)] or ([] if not new else None)


def _read_bound(question: Question) -> float:
    """People who could be exposed; infinitely many where nothing bounds it."""
    return math.inf if question.at_most is None else question.at_most


def _count_people(bound: float) -> int | None:
    return None if math.isinf(bound) else int(bound)


def _summarise(option: Option, result: AuditResult, base: Option) -> Alternative:
    assert base.result is not None
    main, is_base = base.result, option is base
    compared = compare_questions(main.questions, result.questions)
    row = Alternative(
        name=option.name,
        protections=result.scope.protections,
        settings=[] if is_base else describe_settings(main.scope.training, result.scope.training),
        word=result.decision.word if result.decision else None,
        answered=sum(q.is_answered for q in result.questions),
        asked=len(result.questions),
        at_most=compared.at_most,
        demonstrated_at_most=compared.demonstrated,
        people=max((q.people for q in result.questions), default=0),
        unanswered=[
            f"{q.aim.value.replace('_', ' ')} by the {q.observer.replace('_', ' ')}" for q in compared.unanswered
        ],
        severity=_find_worst(result),
        bound=choose_bound(result.bounds, "server"),
        effects=[] if is_base else compare_harms(main, result),
        trades=measure_changes(main, result),
        time=result.summary_metrics.get("simulated_time"),
    )
    _fill_accuracy(row, option, result, base, main)
    return row


def _find_worst(result: AuditResult) -> Severity:
    shown = [f.severity for f in result.findings if f.is_demonstrated]
    return max(shown, key=lambda s: s.rank, default=Severity.NONE)


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


def _rank(row: Alternative) -> tuple[int, float, float, float, str]:
    """Best first: word, people, accuracy, time."""
    time = math.inf if row.time is None else row.time
    people = math.inf if row.at_most is None else row.at_most
    return _place(row.word), people, -(row.accuracy or 0.0), time, row.name


def _place(word: Word | None) -> int:
    return BEST_FIRST.index(word) if word else len(BEST_FIRST)


def _is_better(word: Word | None, than: Word | None) -> bool:
    """Whether a word allows a deployment that the other does not, or with fewer conditions.

    *Cannot tell* is never better: it only says that something is not known.
    """
    return word in DEPLOYABLE and _place(word) < _place(than)


def _explain_no_gain(row: Alternative, base: Alternative, exposed: int) -> str:
    """Why an eligible option is no improvement that was shown; empty where it is one."""
    if _place(row.word) > _place(base.word):
        return "Its verdict is worse than that of the audited run."
    if _is_better(row.word, base.word):
        return ""
    if row.demonstrated_at_most is None:
        return "No gain is shown: nothing bounds how many people it could still expose by what was demonstrated."
    if row.demonstrated_at_most < exposed:
        return ""
    return (
        f"No gain is shown: by what was demonstrated it could still expose {row.demonstrated_at_most:,} people; "
        f"as audited at least {exposed:,} are exposed."
    )
