"""The time left is stated from what this run's own steps took, and only where that tells something."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from fedaudit.audit.cli.time_left import TimeLeft


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def play(lengths: list[float], present: str = "") -> list[tuple[float, float | None]]:
    """After each step: seconds that are really left, and those that are stated."""
    clock = Clock()
    pace, stated = TimeLeft(clock), []
    pace.note(0, present)
    for done, length in enumerate(lengths, start=1):
        clock.now += length
        pace.note(done, present)
        stated.append((sum(lengths[done:]), pace.estimate(len(lengths))))
    return stated


LENGTHS = st.lists(st.floats(1.0, 2.0), min_size=8, max_size=60)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(LENGTHS, st.floats(1e-3, 1e3))
def test_after_half_of_the_steps_what_is_stated_is_wrong_by_less_than_a_factor_of_two(
    lengths: list[float], unit: float
) -> None:
    stated = play([unit * length for length in lengths])
    half = [pair for done, pair in enumerate(stated, start=1) if len(lengths) / 2 <= done < len(lengths)]
    assert half and all(left is not None for _, left in half)
    assert all(really / 2 * 0.999 <= (left or 0.0) <= 2 * 1.001 * really for really, left in half)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(8, 200), st.floats(1e-3, 1e3))
def test_of_even_steps_it_is_exact_and_falls(steps: int, length: float) -> None:
    stated = [left for _, left in play([length] * steps) if left is not None]
    assert all(after < before for before, after in pairwise(stated))
    assert abs(stated[0] - length * len(stated[1:])) < 1e-6 * length * steps


def test_nothing_is_stated_before_a_quarter_is_done_nor_of_few_steps() -> None:
    assert [left for _, left in play([1.0] * 40)[:9]] == [None] * 9
    assert [left for _, left in play([20.0, 1.0, 1.0])] == [None] * 3  # three options, two at a time


def test_nothing_is_stated_where_some_steps_took_much_longer_than_others() -> None:
    assert {left for _, left in play([60.0, 1, 1, 1, 1, 1, 1, 1])} == {None}
    assert {left for _, left in play([1.0, 1, 4, 1, 1, 4, 1, 4])[:-1]} == {None}


def test_steps_with_names_tell_nothing_of_each_other() -> None:
    assert {left for _, left in play([1.0] * 20, "upcnn, about 40 s")} == {None}


def test_time_that_passes_within_a_step_is_taken_off() -> None:
    clock = Clock()
    pace = TimeLeft(clock)
    for done in range(11):
        pace.note(done, "")
        clock.now += 10
    assert pace.estimate(20) == 90
    clock.now += 500
    assert pace.estimate(20) == 0
