"""Which option is recommended: never one that was not asked, is worse, or shows no gain."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedaudit.audit.verdict.trade_offs import (
    Option,
    compare_harms,
    compare_options,
    compare_questions,
    count_shown,
    summarise_recommendation,
)
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.decision import Risk, Word
from fedaudit.reports.questions import HeadCount, Question, State
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Outcome, Severity
from tests.reports.sample import result

PEOPLE = 700
RIGHT = np.ones(1000, bool)


def ask(
    state: str,
    at_most: int | None = None,
    *,
    aim: Aim = Aim.INVERSION,
    kind: str = "model",
    observer: str = "server",
) -> Question:
    return Question(
        id=f"{aim}.{observer}.{kind}",
        aim=aim,
        observer=observer,
        kind=kind,
        rounds="all",
        required=True,
        state=State(state),
        why="w",
        at_most=at_most,
        people=PEOPLE,
    )


def option(
    name: str,
    word: Word,
    questions: Sequence[Question],
    *,
    exposed: int = 0,
    correct: np.ndarray = RIGHT,  # type: ignore[type-arg]
    time: float | None = None,
) -> Option:
    made = result()
    assert made.decision is not None
    made.decision = made.decision.model_copy(update={"word": word})
    made.questions, made.findings, made.figures = list(questions), [], []
    made.people = HeadCount(expected=exposed, interval=(exposed, PEOPLE), people=PEOPLE)
    made.summary_metrics = {"accuracy_final": float(correct.mean())} | (
        {} if time is None else {"simulated_time": time}
    )
    return Option(name=name, result=made, correct=correct)


SHOWN = [ask("demonstrated"), ask("bounded", 30, aim=Aim.MEMBERSHIP)]
ANSWERED = [ask("bounded", 5), ask("bounded", 30, aim=Aim.MEMBERSHIP)]


def base(exposed: int = 40, word: Word = Word.NOT_READY) -> Option:
    return option("as audited", word, SHOWN, exposed=exposed)


def rows_of(*options: Option, exposed: int = 40, word: Word = Word.NOT_READY) -> dict[str, Alternative]:
    return {r.name: r for r in compare_options(base(exposed, word), options)}


def chosen(rows: dict[str, Alternative]) -> list[str]:
    return [r.name for r in rows.values() if r.recommended]


def test_an_option_that_answers_all_and_may_be_deployed_is_recommended() -> None:
    rows = rows_of(option("good", Word.READY, ANSWERED))
    assert chosen(rows) == ["good"] and rows["good"].eligible and rows["good"].why_not == ""
    assert rows["good"].at_most == 30 and rows["good"].demonstrated_at_most == 5
    assert "good is recommended" in summarise_recommendation(list(rows.values()), 40)


@pytest.mark.parametrize("state", ["inconclusive", "not_asked", "no_attack"])
@pytest.mark.parametrize("word", list(Word))
@pytest.mark.parametrize("place", [0, 1])
def test_an_option_that_leaves_a_question_unanswered_is_never_recommended(
    state: str, word: Word, place: int
) -> None:
    questions = [q.model_copy() for q in ANSWERED]
    questions[place] = questions[place].model_copy(update={"state": State(state), "at_most": 0})
    rows = rows_of(option("open", word, questions))
    assert not chosen(rows) and not rows["open"].eligible and "Without an answer" in rows["open"].why_not
    kept = None if place == 0 else 30  # the audited run's own bound, whatever the option says
    assert rows["open"].at_most == kept


def test_an_option_that_nothing_attacked_is_never_recommended() -> None:
    assert not chosen(rows_of(option("unasked", Word.READY, [])))


def test_what_is_sent_in_the_place_of_an_artifact_has_to_be_answered() -> None:
    # secure sums: the model is gone, and a sum is there that no attack reads
    hidden = [ask("no_attack", kind="aggregate"), ask("bounded", 3, aim=Aim.MEMBERSHIP, kind="aggregate")]
    compared = compare_questions(SHOWN, hidden)
    assert [q.aim for q in compared.unanswered] == [Aim.INVERSION] and compared.at_most is None
    withheld = compare_questions(SHOWN, [])  # nothing is sent: nothing is left, of either harm
    assert withheld.unanswered == [] and (withheld.at_most, withheld.demonstrated) == (0, 0)


def test_rounds_that_an_option_leaves_out_are_a_question_that_it_leaves_out() -> None:
    late, early = ask("bounded", 5), ask("not_asked")
    early.id += ".other_rounds"
    assert compare_questions([ask("demonstrated")], [late, early]).unanswered  # the audited run read all rounds
    assert not compare_questions([ask("demonstrated"), early], [late, early]).unanswered  # neither did
    shown_early = early.model_copy(update={"state": State.DEMONSTRATED})
    assert not compare_questions([late, shown_early], [late]).unanswered  # one row for all rounds answers both


def test_what_nothing_bounds_shows_no_gain() -> None:
    rows = rows_of(option("found", Word.NOT_READY, [ask("demonstrated"), *ANSWERED[1:]]), exposed=PEOPLE)
    assert not chosen(rows) and "nothing bounds" in rows["found"].why_not


@pytest.mark.parametrize("aim", [Aim.RECONSTRUCTION, Aim.REGURGITATION, Aim.LINKAGE])
def test_a_sum_of_which_a_harm_is_not_asked_does_not_make_the_harm_go_away(aim: Aim) -> None:
    # secure sums of updates: reconstruction was asked of an update, and inversion is asked of a sum
    before = [ask("demonstrated", aim=aim)]
    for state in ("inconclusive", "not_asked", "no_attack"):
        assert compare_questions(before, [ask(state, kind="aggregate")]).unanswered
    answered = compare_questions(before, [ask("bounded", 4, kind="aggregate")])
    assert bool(answered.unanswered) is (
        aim is not Aim.RECONSTRUCTION
    )  # which inversion of a sum is the same harm as
    assert compare_questions(before, []).unanswered == []


def test_another_observers_answer_does_not_count() -> None:
    moved = [ask("bounded", 5), ask("bounded", 1, aim=Aim.MEMBERSHIP, observer="client")]
    worse = [ask("not_asked", aim=Aim.MEMBERSHIP), *moved]
    assert [q.aim for q in compare_questions(SHOWN, [ask("bounded", 5), *worse[:1]]).unanswered] == [
        Aim.MEMBERSHIP
    ]
    assert [q.aim for q in compare_questions([ask("demonstrated")], [*worse]).unanswered] == []


@pytest.mark.parametrize(
    ("audited", "own"),
    [
        (Word.READY, Word.WITH_CONDITIONS),
        (Word.READY, Word.CANNOT_TELL),
        (Word.READY, Word.NOT_READY),
        (Word.WITH_CONDITIONS, Word.CANNOT_TELL),
        (Word.WITH_CONDITIONS, Word.NOT_READY),
        (Word.CANNOT_TELL, Word.NOT_READY),
    ],
)
def test_an_option_with_a_worse_word_is_never_recommended(audited: Word, own: Word) -> None:
    rows = rows_of(option("worse", own, ANSWERED), exposed=PEOPLE, word=audited)
    assert not chosen(rows) and rows["worse"].eligible and "worse" in rows["worse"].why_not


def test_cannot_tell_is_no_gain_of_its_own() -> None:
    assert not chosen(rows_of(option("unsure", Word.CANNOT_TELL, ANSWERED), exposed=5))
    assert chosen(rows_of(option("unsure", Word.CANNOT_TELL, ANSWERED), exposed=6)) == ["unsure"]


def test_equal_bounds_recommend_nothing() -> None:
    rows = rows_of(option("same", Word.NOT_READY, ANSWERED), exposed=5)
    assert not chosen(rows) and "No gain is shown" in rows["same"].why_not
    assert summarise_recommendation(list(rows.values()), 5).startswith("None recommended. same: No gain")


def test_harms_add_where_people_are_counted_together() -> None:
    shown = [ask("demonstrated"), ask("demonstrated", aim=Aim.MEMBERSHIP)]
    compared = compare_questions(shown, [ask("bounded", 20), ask("bounded", 30, aim=Aim.MEMBERSHIP)])
    assert (compared.at_most, compared.demonstrated) == (30, 50)


def test_the_worst_artifact_counts() -> None:
    shown = [ask("demonstrated"), ask("bounded", 2, kind="prototypes")]
    compared = compare_questions(shown, [ask("bounded", 1), ask("bounded", 9, kind="prototypes")])
    assert compared.demonstrated == 9


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
    start = option("as audited", Word.NOT_READY, SHOWN, exposed=40, correct=correct)
    assert [compare_options(start, [o])[1].eligible for o in (paired, alone)] == [True, False]


def test_an_accuracy_that_nobody_measured_is_not_free() -> None:
    unknown = option("recorded", Word.READY, ANSWERED)
    assert unknown.result is not None
    unknown.result.summary_metrics = {}
    rows = rows_of(unknown)
    assert not chosen(rows) and "must be run again" in rows["recorded"].why_not


def test_options_are_ranked_by_word_people_accuracy_and_time() -> None:
    less = RIGHT.copy()
    less[:2] = False
    ranked = [
        option("a", Word.READY, [ask("bounded", 5), ask("bounded", 10, aim=Aim.MEMBERSHIP)], time=2.0),
        option("b", Word.READY, [ask("bounded", 5), ask("bounded", 10, aim=Aim.MEMBERSHIP)], time=3.0),
        option(
            "c", Word.READY, [ask("bounded", 5), ask("bounded", 10, aim=Aim.MEMBERSHIP)], correct=less, time=1.0
        ),
        option("d", Word.READY, ANSWERED),
        option("e", Word.WITH_CONDITIONS, [ask("bounded", 0), ask("bounded", 0, aim=Aim.MEMBERSHIP)]),
    ]
    for first in range(len(ranked)):
        assert chosen(rows_of(*reversed(ranked[first:]))) == [ranked[first].name]


def test_an_option_that_did_not_end_says_so() -> None:
    rows = rows_of(Option(name="stopped", result=None))
    assert not chosen(rows) and rows["stopped"].why_not == "It was not run to the end."


def test_the_audited_run_counts_whom_it_exposes_at_least() -> None:
    assert base().result is not None and count_shown(base(exposed=17).result) == 17  # type: ignore[arg-type]
    assert compare_options(base(), []) == [] and summarise_recommendation([], 0) == ""


def harmed(
    risks: Sequence[tuple[str, str, str]], questions: Sequence[Question], **below: list[str]
) -> AuditResult:
    """An audit that demonstrates harms: finding, what it does, severity; `below` are of the same leak."""
    made = result()
    assert made.decision is not None
    made.questions = list(questions)
    made.findings = [
        made.findings[0].model_copy(
            update={"id": i, "outcome": Outcome.DEMONSTRATED, "shown_by": below.get(i, []), "part_of": ""}
        )
        for i, _, _ in risks
    ]
    made.decision.risks = [Risk(finding=i, what=w, who="the server", whom="", severity=s) for i, w, s in risks]
    return made


def shown_by(question: Question, *findings: str) -> Question:
    return question.model_copy(update={"findings": list(findings)})


DRAWN = [("lookup", "Images are redrawn", "critical")]
DRAWN_QUESTION = shown_by(ask("demonstrated"), "lookup")


def test_a_harm_that_an_options_audit_shows_again_is_left_with_the_severity_that_it_has_there() -> None:
    main = harmed(DRAWN, [DRAWN_QUESTION])
    same = harmed([("upcnn", "Images are redrawn", "low")], [ask("bounded", 1)])  # by another attack
    assert compare_harms(main, same) == [HarmEffect(finding="lookup", state="left", severity=Severity.LOW)]
    other = harmed([("lookup", "Somebody is recognised", "high")], [])  # the attack still works, in another way
    assert compare_harms(main, other) == [HarmEffect(finding="lookup", state="left", severity=Severity.HIGH)]


def test_an_attack_of_the_same_leak_that_still_works_leaves_the_harm() -> None:
    main = harmed(DRAWN, [DRAWN_QUESTION], lookup=["prototype_membership"])
    option = harmed([("prototype_membership", "Who took part becomes known", "high")], [ask("bounded", 1)])
    assert [e.state for e in compare_harms(main, option)] == ["left"]


def test_a_harm_is_stopped_by_a_bound_or_where_nothing_is_sent_in_its_place() -> None:
    main = harmed(DRAWN, [DRAWN_QUESTION])
    bounded = compare_harms(main, harmed([], [ask("bounded", 7)]))
    assert bounded == [HarmEffect(finding="lookup", state="stopped", at_most=7)]
    assert compare_harms(main, harmed([], [])) == [HarmEffect(finding="lookup", state="stopped")]


@pytest.mark.parametrize("state", ["demonstrated", "inconclusive", "not_asked", "no_attack"])
def test_what_is_neither_shown_again_nor_bounded_is_open(state: str) -> None:
    main = harmed(DRAWN, [DRAWN_QUESTION])
    for kind in ("model", "aggregate"):
        assert [e.state for e in compare_harms(main, harmed([], [ask(state, 0, kind=kind)]))] == ["open"]
    assert [e.state for e in compare_harms(harmed(DRAWN, []), harmed([], []))] == [
        "open"
    ]  # no question is about it


def test_a_matrix_that_was_not_run_again_stops_nothing() -> None:
    lost = shown_by(ask("demonstrated", aim=Aim.AVAILABILITY, observer="client", kind="mean"), "lookup")
    assert [e.state for e in compare_harms(harmed(DRAWN, [lost]), harmed([], []))] == ["open"]


def test_a_harm_is_stopped_in_part_where_one_of_its_questions_or_findings_is_open() -> None:
    other = shown_by(ask("demonstrated", kind="prototypes"), "lookup")
    main = harmed(DRAWN, [DRAWN_QUESTION, other])
    half = harmed([], [ask("bounded", 7), ask("inconclusive", kind="prototypes")])
    assert compare_harms(main, half) == [HarmEffect(finding="lookup", state="partly stopped")]
    unasked = harmed(DRAWN, [DRAWN_QUESTION], lookup=["upcnn"])  # which no question is about
    assert [e.state for e in compare_harms(unasked, harmed([], [ask("bounded", 7)]))] == ["partly stopped"]


def test_a_harm_that_only_the_options_audit_shows_is_new_and_comes_last() -> None:
    main = harmed(DRAWN, [DRAWN_QUESTION])
    option = harmed([("sum_difference", "People are counted", "medium")], [ask("bounded", 7)])
    first, last = compare_harms(main, option)
    assert first.state == "stopped"
    assert last == HarmEffect(
        finding="sum_difference", state="new", severity=Severity.MEDIUM, what="People are counted"
    )
    base = Option(name="as audited", result=main)
    rows = compare_options(base, [Option(name="sums", result=option)])
    assert [len(r.effects) for r in rows] == [0, 2]
