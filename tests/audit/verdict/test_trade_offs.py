"""Which option is recommended: never one that was not asked, is worse, or shows no gain."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.trade_offs import (
    Option,
    compare_cells,
    compare_harms,
    compare_options,
    summarise_recommendation,
)
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import Cell, State
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity
from tests.audit.verdict.audits import ask, ask_rule, make_audit, make_finding

RIGHT = np.ones(1000, bool)
POLICY = load_policy("default")
SHOWN: list[Cell] = [ask(State.EXPOSED, Harm.RECONSTRUCTION, at_least=40, at_most=90), ask(State.CLEAR)]
ANSWERED: list[Cell] = [ask(State.CLEAR, Harm.RECONSTRUCTION, at_most=5), ask(State.CLEAR)]


def option(
    name: str,
    word: Word,
    cells: Sequence[Cell],
    *,
    correct: np.ndarray = RIGHT,  # type: ignore[type-arg]
    time: float | None = None,
) -> Option:
    made = make_audit(cells=list(cells))
    made.figures = []
    made.decision = decide(made, POLICY).model_copy(update={"word": word})
    made.summary_metrics = {"accuracy_final": float(correct.mean())} | (
        {} if time is None else {"simulated_time": time}
    )
    return Option(name=name, result=made, correct=correct)


def rows_of(*options: Option, word: Word = Word.NOT_READY) -> dict[str, Alternative]:
    return {r.name: r for r in compare_options(option("as audited", word, SHOWN), options)}


def chosen(rows: dict[str, Alternative]) -> list[str]:
    return [r.name for r in rows.values() if r.recommended]


def test_an_option_that_answers_all_and_may_be_deployed_is_recommended() -> None:
    rows = rows_of(option("good", Word.READY, ANSWERED))
    assert chosen(rows) == ["good"] and rows["good"].at_most == 5
    assert "good is recommended. Its audit says: Ready" in summarise_recommendation([*rows.values()])


@pytest.mark.parametrize(
    "cells", [[ANSWERED[0], ask(State.OPEN)], [ask(State.OPEN, Harm.RECONSTRUCTION), ask(State.CLEAR)]]
)
def test_an_option_that_leaves_a_question_unanswered_is_never_recommended(cells: list[Cell]) -> None:
    rows = rows_of(option("open", Word.READY, cells))
    assert not chosen(rows) and rows["open"].why_not.startswith("Without an answer: ")


def test_an_option_that_nothing_attacked_is_never_recommended() -> None:
    assert not chosen(rows_of(option("silent", Word.READY, [])))


def test_what_an_option_does_not_send_is_no_question_of_it() -> None:
    rows = rows_of(option("less", Word.READY, [ask(State.CLEAR)]))
    assert chosen(rows) == ["less"] and rows["less"].at_most == 0
    assert [e.state for e in rows["less"].cells] == ["unasked", "clear"]


def test_another_readers_answer_does_not_count() -> None:
    elsewhere = [
        ask(State.OPEN, Harm.RECONSTRUCTION),
        ask(State.CLEAR, Harm.RECONSTRUCTION, "public"),
        ask(State.CLEAR),
    ]
    assert not chosen(rows_of(option("public", Word.READY, elsewhere)))


def test_a_matrix_that_was_not_run_again_leaves_its_question_open() -> None:
    main = make_audit(cells=[ask_rule(State.EXPOSED)])
    assert [e.state for e in compare_cells(main, make_audit(cells=[]))] == ["open"]


@pytest.mark.parametrize(
    ("audited", "own"), product([Word.WITH_CONDITIONS, Word.READY], [Word.NOT_READY, Word.CANNOT_TELL])
)
def test_an_option_with_a_worse_word_is_never_recommended(audited: Word, own: Word) -> None:
    assert not chosen(rows_of(option("worse", own, ANSWERED), word=audited))


@pytest.mark.parametrize(("at_most", "gains"), [(39, True), (40, False), (None, False)])
def test_without_a_better_word_fewer_must_be_hit_at_most_than_the_audited_run_hits_at_least(
    at_most: int | None, gains: bool
) -> None:
    still = [ask(State.EXPOSED, Harm.RECONSTRUCTION, at_least=20, at_most=at_most), ask(State.CLEAR)]
    rows = rows_of(option("o", Word.NOT_READY, still))
    assert chosen(rows) == (["o"] if gains else [])
    assert gains or rows["o"].why_not.startswith("No gain is shown")


def test_cannot_tell_is_no_gain_of_its_own() -> None:
    still = [ask(State.EXPOSED, Harm.RECONSTRUCTION, at_least=20, at_most=60), ask(State.CLEAR)]
    assert not chosen(rows_of(option("o", Word.CANNOT_TELL, still)))


@pytest.mark.parametrize(("lost", "eligible"), [(0, True), (5, True), (40, False)])
def test_the_upper_end_of_the_paired_cost_decides(lost: int, eligible: bool) -> None:
    correct = RIGHT.copy()
    correct[:lost] = False
    rows = rows_of(option("o", Word.READY, ANSWERED, correct=correct))
    assert rows["o"].eligible is eligible
    assert ("points of accuracy" in rows["o"].why_not) is not eligible


def test_paired_answers_show_what_independent_accuracies_cannot() -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(1000) < 0.9
    paired = option("o", Word.READY, ANSWERED, correct=correct)
    alone = Option(name="o", result=paired.result, correct=None)
    start = option("as audited", Word.NOT_READY, SHOWN, correct=correct)
    assert [compare_options(start, [o])[1].eligible for o in (paired, alone)] == [True, False]


def test_an_accuracy_that_nobody_measured_is_not_free() -> None:
    unknown = option("recorded", Word.READY, ANSWERED)
    assert unknown.result is not None
    unknown.result.summary_metrics = {}
    rows = rows_of(unknown)
    assert not chosen(rows) and "must be run again" in rows["recorded"].why_not


def test_options_are_ranked_by_word_people_accuracy_beyond_its_interval_and_time() -> None:
    little, much = RIGHT.copy(), RIGHT.copy()
    little[:2] = much[:10] = False
    few = [ask(State.CLEAR, Harm.RECONSTRUCTION, at_most=3), ask(State.CLEAR)]
    ranked = [
        option("a", Word.READY, few, correct=little, time=1.0),
        option("b", Word.READY, few, time=2.0),
        option("c", Word.READY, few, correct=much, time=1.0),
        option("d", Word.READY, ANSWERED),
        option("e", Word.WITH_CONDITIONS, few),
    ]
    for first in range(len(ranked)):
        assert chosen(rows_of(*reversed(ranked[first:]))) == [ranked[first].name]


def test_an_option_that_did_not_end_says_so() -> None:
    rows = rows_of(Option(name="stopped", result=None))
    assert not chosen(rows) and rows["stopped"].why_not == "It was not run to the end."


def test_without_options_nothing_is_compared() -> None:
    assert compare_options(option("as audited", Word.NOT_READY, SHOWN), []) == []
    assert summarise_recommendation([]) == ""


def decided(*cells: Cell, facts: Sequence[str] = ()) -> AuditResult:
    made = make_audit(*(make_finding("high", "disclosure", title=t) for t in facts), cells=list(cells))
    made.decision = decide(made, POLICY)
    return made


EXPOSED = ask(State.EXPOSED)
TOLD = "Recognises a person as training data"


@pytest.mark.parametrize(
    ("own", "effect"),
    [
        ([ask(State.EXPOSED, at_least=200)], HarmEffect(what=TOLD, state="left", severity=Severity.HIGH)),
        ([ask(State.OPEN, at_least=9)], HarmEffect(what=TOLD, state="left", severity=Severity.LOW)),
        ([ask(State.CLEAR, at_most=7)], HarmEffect(what=TOLD, state="stopped", at_most=7)),
        ([], HarmEffect(what=TOLD, state="stopped")),
        ([ask(State.OPEN)], HarmEffect(what=TOLD, state="open")),
    ],
)
def test_a_harm_is_left_stopped_or_open_by_the_options_own_audit(own: list[Cell], effect: HarmEffect) -> None:
    assert compare_harms(decided(EXPOSED), decided(*own)) == [effect]


def test_a_harm_is_stopped_where_all_that_showed_it_is() -> None:
    both = decided(EXPOSED, ask(State.EXPOSED, observer="public"))
    half = decided(ask(State.CLEAR), ask(State.OPEN, observer="public"))
    assert compare_harms(both, half) == [HarmEffect(what=TOLD, state="open")]


def test_what_is_seen_is_left_or_open_and_a_harm_that_only_the_option_has_is_new() -> None:
    main, same = decided(facts=["Rows are sent"]), decided(facts=["Rows are sent"])
    assert [e.state for e in compare_harms(main, same)] == ["left"]
    new = compare_harms(main, decided(EXPOSED))
    assert [(e.what, e.state) for e in new] == [("Rows are sent", "open"), (TOLD, "new")]
