"""The head count: people hit by the attack that hits most of them for sure, and nobody by luck."""

from dataclasses import replace

import pytest

from fedaudit.attacks.models._targets import GLOBAL, UPDATE
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.verdict.heads import count_exposed_people, count_heads
from fedaudit.fl.kinds import Kind
from tests.audit.verdict.test_leaks import find_leaks, run_attack


def hit_people(hits: int, luck: Share, *, tested: int = 719, people: int = 719) -> PeopleCount:
    """One client of so many people, of whom the first were tested, and the first of these hit."""
    return PeopleCount(
        hit_means="named",
        tested={0: tuple(range(tested))},
        hit={0: tuple(range(hits))},
        held={0: people},
        luck=luck,
    )


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
    heads = count_heads([hit_people(hits, Share(hits=luck[0], trials=luck[1]))])
    assert heads is not None and heads.interval == interval
    assert heads.expected == pytest.approx(expected, abs=0.05)


def test_of_several_attacks_the_one_counts_that_hits_most_people_for_sure() -> None:
    sure = hit_people(60, Share(hits=2, trials=400))
    loud = hit_people(200, Share(hits=100, trials=400))
    both = count_heads([loud, sure])
    assert both is not None and both == count_heads([sure, loud]) and 50 < both.expected < 60
    alone = count_heads([sure])
    assert alone is not None and alone.expected == both.expected and both.interval[0] <= alone.interval[0]


def test_people_who_were_not_tested_are_like_the_others_and_may_be_none_of_them() -> None:
    heads = count_heads([hit_people(12, Share(trials=400), tested=150)])
    assert heads is not None and heads.expected == pytest.approx(12 * 719 / 150)
    assert heads.interval[0] <= 12 and heads.interval[1] > 90


def test_whose_luck_nobody_knows_hits_nobody_for_sure_and_perhaps_everybody() -> None:
    heads = count_heads([hit_people(9, Share())])
    assert heads is not None and (heads.expected, heads.interval) == (0, (0, 719))


def test_without_people_no_number_of_people_is_given() -> None:
    assert count_heads([]) is None
    assert count_heads([hit_people(0, Share(trials=100), tested=0)]) is None


def test_only_the_kind_of_message_on_which_an_attack_worked_adds_people() -> None:
    people = [
        replace(hit_people(20, Share(trials=400)), kind=Kind.LOCAL_MODEL),
        replace(hit_people(40, Share(trials=400)), kind=Kind.GLOBAL_MODEL),
    ]
    heads = [
        count_exposed_people(find_leaks(run_attack("loss_threshold", 0.9, (), people, {"model": model})))
        for model in (UPDATE, GLOBAL)
    ]
    assert [h.expected for h in heads if h] == [20, 40]
