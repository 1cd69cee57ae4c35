"""The head count: people hit by the attack that hits most of them for sure, and nobody by luck."""

import pytest

from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.verdict.heads import count_heads
from fedaudit.audit.verdict.people import bound_people
from fedaudit.audit.verdict.questions import Shown
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import Severity


def show(
    hits: int,
    luck: Share,
    *,
    tested: int = 719,
    people: int = 719,
    harm: Harm = Harm.MEMBERSHIP,
    required: bool = True,
) -> Shown:
    """One client of so many people, of whom the first were tested, and the first of these hit."""
    count = PeopleCount(
        harm=harm,
        hit_means="named",
        tested={0: tuple(range(tested))},
        hit={0: tuple(range(hits))},
        held={0: people},
        luck=luck,
    )
    asked = Question(id="q", harm=harm, observer="server", required=required, state=State.OPEN, why="")
    return Shown(Severity.MEDIUM, asked, bound_people(count, alpha=0.1))


@pytest.mark.parametrize(
    ("hits", "luck", "expected", "interval"),
    [
        (110, (8, 300), 90.8, (73, 102)),
        (33, (8, 300), 13.8, (0, 25)),
        (14, (20, 1000), 0.0, (0, 7)),
        (0, (1, 300), 0.0, (0, 0)),
    ],
)
def test_a_head_count_is_what_luck_leaves_between_the_two_limits(
    hits: int, luck: tuple[int, int], expected: float, interval: tuple[int, int]
) -> None:
    heads = count_heads([show(hits, Share(hits=luck[0], trials=luck[1]))])
    assert heads is not None and heads.interval == interval
    assert heads.expected == pytest.approx(expected, abs=0.05)


def test_of_several_attacks_the_one_counts_that_hits_most_people_for_sure() -> None:
    sure, many = show(60, Share(hits=0, trials=1000)), show(200, Share(hits=60, trials=300))
    heads = count_heads([many, sure])
    assert heads is not None and heads.interval == (sure.bound.at_least, sure.bound.at_most)


def test_what_is_mild_or_not_asked_for_counts_no_heads() -> None:
    assert count_heads([show(300, Share(hits=1, trials=300), harm=Harm.DIFFUSE)]) is None
    assert count_heads([show(300, Share(hits=1, trials=300), harm=Harm.LINKAGE, required=False)]) is None


def test_people_who_were_not_tested_are_like_the_others_and_may_be_none_of_them() -> None:
    heads = count_heads([show(40, Share(hits=0, trials=1000), tested=360, people=720)])
    assert heads is not None and heads.expected == 80 and heads.interval[0] <= 40 < heads.interval[1]


def test_whose_luck_nobody_knows_hits_nobody_for_sure_and_perhaps_everybody() -> None:
    heads = count_heads([show(40, Share())])
    assert heads is not None and heads.interval == (0, 719)


def test_without_people_no_number_of_people_is_given() -> None:
    assert count_heads([]) is None and count_heads([show(0, Share(), tested=0)]) is None
