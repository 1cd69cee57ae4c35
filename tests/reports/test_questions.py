"""The tables of questions: every question once, with both limits and its state, and nothing claims more."""

import pytest

from fedaudit.reports.questions import Question, RuleQuestion, describe_answered
from fedaudit.reports.section import Block, Bullets, Folded, Paragraph, Table
from fedaudit.reports.sections.questions import Questions
from tests.reports.sample import questions, result, rule_questions


def shown(people: list[Question], model: list[RuleQuestion]) -> list[Block]:
    return Questions().build(result().model_copy(update={"questions": people, "rule_questions": model}))


def tables(people: list[Question], model: list[RuleQuestion]) -> list[list[list[str]]]:
    found = [b.rows for b in shown(people, model) if isinstance(b, Table)]
    return [[[str(cell).replace("\u00a0", " ") for cell in row] for row in rows] for rows in found]


def test_every_question_has_a_row_with_its_reader_its_limits_and_its_state() -> None:
    of_people, of_model = tables(questions(), rule_questions())
    assert [row[:5] for row in of_people] == [
        ["Reconstruction *", "the server", "760 of 1,400", "840 of 1,400", "Exposed"],
        ["Membership *", "the server", "0 of 1,400", "not known", "Open"],
        ["An attribute of a person *", "the server", "0 of 1,400", "12 of 1,400", "Clear"],
        ["Membership *", "another client", "0 of 1,400", "not known", "Open"],
        ["An attribute of a person *", "another client", "0 of 1,400", "not known", "Open"],
        ["Membership *", "whoever gets the model", "1 of 1,400", "32 of 1,400", "Exposed"],
        ["Linkage", "the server", "0 of 1,400", "not known", "Open"],
    ]
    assert [row[:5] for row in of_model] == [
        ["Backdoor *", "multi krum, 10 % malicious", "0 %", "3.8 %", "Clear"]
    ]


def test_a_reason_that_begins_with_the_name_of_an_attack_keeps_its_small_letter() -> None:
    (folded,) = [b for b in shown(questions(), []) if isinstance(b, Folded)]
    (reasons,) = [b.items for b in folded.blocks if isinstance(b, Bullets)]
    assert reasons[0].startswith("Reconstruction by the server: upcnn hit 860")
    assert reasons[1].startswith("Membership by the server: There is no limit")
    assert "Accepted: A. Person, until 2027: known; no attack" in reasons[4]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7, "Of 7 questions, 2 exposed, 1 clear, 4 open. 2 required questions are open."),
        (2, "Of 2 questions, 1 exposed, 1 open. 1 required question is open."),
        (1, "Of 1 question, 1 exposed."),
        (0, "No question could be asked."),
    ],
)
def test_the_sentence_counts_every_state_and_what_the_verdict_waits_for(number: int, text: str) -> None:
    assert describe_answered(questions()[:number]) == text


def test_a_report_without_messages_says_that_nothing_was_asked() -> None:
    (only,) = shown([], [])
    assert isinstance(only, Paragraph) and "nothing was asked" in only.text
