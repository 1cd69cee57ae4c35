"""The number of people on page 1 is the lower limit of a question of the table, and none is larger."""

from fedaudit.audit.verdict.answers import find_most_hit
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.questions import Question, State
from tests.reports.sample import result as make_result


def ask(name: str, harm: Harm, at_least: int, *, required: bool = True) -> Question:
    """A question in which so many of 800 people are known to be hit."""
    return Question(
        id=name,
        harm=harm,
        observer="server",
        required=required,
        state=State.OPEN,
        why="",
        people=800,
        at_least=at_least,
    )


def find(*asked: Question) -> str | None:
    result = make_result().model_copy(update={"questions": list(asked)})
    found = find_most_hit(result)
    return found.id if found else None


def test_it_is_the_worst_that_a_verdict_waits_for_and_that_is_more_than_mild() -> None:
    few, many = ask("few", Harm.MEMBERSHIP, 3), ask("many", Harm.RECONSTRUCTION, 90)
    mild = ask("mild", Harm.DIFFUSE, 300)
    assert find(few, many, mild, ask("optional", Harm.LINKAGE, 700, required=False)) == "many"
    assert find(mild) == "mild"  # not "0 of 800" by another attack


def test_nobody_is_counted_where_nobody_is_known_to_be_hit_and_clients_are_no_people() -> None:
    assert find(ask("none", Harm.MEMBERSHIP, 0), ask("sites", Harm.CLIENT_FACT, 5)) is None
