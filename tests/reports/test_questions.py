"""The table of questions: every question once, with its state in words, and nothing that claims more."""

from fedaudit.reports.questions import Question, describe_answered
from fedaudit.reports.section import Block, Paragraph, Table
from fedaudit.reports.sections.questions import Questions
from tests.reports.sample import questions, result


def shown(rows: list[Question]) -> list[Block]:
    return Questions().build(result().model_copy(update={"questions": rows}))


def table(rows: list[Question]) -> Table:
    return next(b for b in shown(rows) if isinstance(b, Table))


def test_every_question_has_its_state_in_words_and_required_ones_come_first() -> None:
    rows = table(questions()).rows
    assert [(row[0], row[2]) for row in rows] == [
        ("Inversion: local prototypes *", "Demonstrated"),
        ("Membership: local prototypes *", "Inconclusive"),
        ("Attribute: proto counts *", "Bounded"),
        ("Membership: global prototypes *", "Not asked"),
        ("Attribute: global prototypes *", "Not asked"),
        ("Membership: global prototypes *", "No attack exists"),
        ("Linkage: whether and when a client sends", "No attack exists"),
    ]
    assert str(rows[4][3]).startswith("Accepted: A. Person; left out")


def test_questions_that_differ_in_artifact_and_reader_alone_share_a_row() -> None:
    first = questions()[3]
    of_model = first.model_copy(update={"id": "x", "kind": "global_model"})
    (row,) = table([first, of_model]).rows
    assert row[0] == "Membership: global prototypes, global model *"
    both = [
        q.model_copy(update={"observer": o, "id": f"{q.id}{o}"})
        for o in ("server", "client")
        for q in (first, of_model)
    ]
    assert [r[1] for r in table(both).rows] == ["the server, another client"]
    unequal = table(both[:3]).rows  # a row never says that somebody reads what another artifact's reader reads
    assert [(r[0], r[1]) for r in unequal] == [
        ("Membership: global prototypes *", "the server, another client"),
        ("Membership: global model *", "the server"),
    ]


def test_a_question_of_some_rounds_names_them() -> None:
    first = questions()[3].model_copy(update={"rounds": "rounds 1 to 3 of 5"})
    (row,) = table([first]).rows
    assert row[0] == "Membership: global prototypes (rounds 1 to 3 of 5) *"


def test_the_sentence_counts_what_is_answered_and_what_is_open() -> None:
    assert describe_answered(questions()) == (
        "2 of 7 questions answered: 1 demonstrated, 1 bounded. The others: 1 inconclusive, 2 not asked, 2 no "
        "attack exists. 3 required questions are open."
    )


def test_a_report_without_messages_says_that_nothing_was_asked() -> None:
    (only,) = shown([])
    assert isinstance(only, Paragraph) and "nothing was asked" in only.text
