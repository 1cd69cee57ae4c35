"""The head count: the vectors of the specification, nobody twice, and nobody by luck."""

from dataclasses import replace

import pytest

from fedaudit.attacks.models._targets import GLOBAL, UPDATE
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.verdict.heads import count_beyond_luck, count_exposed_people, count_heads
from fedaudit.fl.kinds import Kind
from tests.audit.verdict.test_leaks import find_leaks, run_attack


def hit_people(
    hit: dict[int, tuple[int, ...]], luck: Share | None = None, each: int = 50, false_alarms: float = 0.0
) -> PeopleCount:
    """Two clients of a hundred people each, of whom the first `each` were tested."""
    return PeopleCount(
        hit_means="named",
        tested={c: tuple(range(100 * c, 100 * c + each)) for c in (0, 1)},
        hit=hit,
        held={0: 100, 1: 100},
        luck=luck or Share(trials=100),
        false_alarms=false_alarms,
    )


@pytest.mark.parametrize(
    ("hits", "tested", "expected", "interval"),
    [(30, 719, 15.9, (8, 23)), (14, 719, 0.0, (0, 7)), (12, 150, 44.0, (18, 81))],
)
def test_head_counts_are_those_of_the_specification(
    hits: int, tested: int, expected: float, interval: tuple[int, int]
) -> None:
    heads = count_beyond_luck(hits=hits, tested=tested, people=719, luck=0.02)
    assert heads.expected == pytest.approx(expected, abs=0.05) and heads.interval == interval


def test_whom_two_attacks_hit_counts_once() -> None:
    one, other = hit_people({0: (1, 2)}), hit_people({0: (2, 3)})
    heads = count_heads([one, other])
    assert heads is not None and heads.expected == 3 * 200 / 100
    assert count_heads([one, one]) == count_heads([one])


def test_two_attacks_may_be_lucky_twice() -> None:
    first = hit_people({0: tuple(range(20))}, luck=Share(hits=20, trials=100))
    second = hit_people({1: tuple(range(100, 116))}, luck=Share(hits=20, trials=100))
    heads = count_heads([first, second])  # 36 hits, and 1 - .8^2 of a hundred people by luck
    assert heads is not None and heads.expected == pytest.approx(0, abs=1e-9)


def test_no_attack_takes_away_the_people_whom_another_shows() -> None:
    sure = hit_people({0: tuple(range(36))}, luck=Share(hits=1, trials=100))
    lucky = hit_people({0: tuple(range(36))}, luck=Share(hits=35, trials=100))
    alone = count_heads([sure])
    assert alone is not None and alone.interval[0] > 50
    assert count_heads([sure, lucky]) == count_heads([lucky, sure]) == alone
    some = {0: tuple(range(13)), 1: tuple(range(100, 122))}  # by luck, whoever they are
    other = replace(lucky, hit=some)
    both = count_heads([sure, other])
    assert both is not None and both.expected == alone.expected and both.interval[0] > 45


def test_a_threshold_without_held_out_people_has_the_luck_it_was_set_for() -> None:
    heads = count_heads([hit_people({0: (1,)}, luck=Share(), false_alarms=0.01)])
    assert heads is not None and heads.expected == pytest.approx(0, abs=1e-9)


def test_without_people_no_number_of_people_is_given() -> None:
    assert count_heads([]) is None
    assert count_heads([hit_people({}, each=0)]) is None


def test_only_the_kind_of_message_on_which_an_attack_worked_adds_people() -> None:
    people = [
        replace(hit_people({0: (1, 2)}), kind=Kind.LOCAL_MODEL),
        replace(hit_people({0: (3, 4), 1: (100, 101)}), kind=Kind.GLOBAL_MODEL),
    ]
    heads = [
        count_exposed_people(find_leaks(run_attack("loss_threshold", 0.9, (), people, {"model": model})))
        for model in (UPDATE, GLOBAL)
    ]
    assert [h.expected for h in heads if h] == [2 * 200 / 100, 4 * 200 / 100]
