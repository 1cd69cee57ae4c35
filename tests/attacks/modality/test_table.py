"""Rows of a table: which claim belongs to which row, what of it is right, and what nobody's rows reach."""

import numpy as np
import pytest

from fedaudit.attacks.modality.table import compare_rows, draw_rows, find_middle, match_rows, write_pair
from fedaudit.fl.data.columns import Column, Columns

NAN = float("nan")
COLUMNS = Columns(
    columns=(
        Column(name="age", unit="years", step=1, low=0, high=100),
        Column(name="ward", kind="category", levels=("a", "b", "c"), missing=True),
        Column(name="dose", low=0, high=10),
    )
).learn(np.array([[20.0, 0, 2], [40, 1, 4], [40, 1, NAN], [60, NAN, 12]]))  # dose: deviation 4.3205
TRUTH = np.array([[30.0, 0, 1], [70, 2, 9]])


def test_rows_are_matched_without_replacement_by_the_least_sum() -> None:
    near_both = np.array([[50.0, 0, 5], [31, 0, 1]])
    assert match_rows(near_both, TRUTH, COLUMNS).tolist() == [1, 0]
    assert match_rows(TRUTH[:1], TRUTH, COLUMNS).tolist() == [0, -1]
    assert match_rows(TRUTH[:0], TRUTH, COLUMNS).tolist() == [-1, -1]


def test_what_is_claimed_right_is_exact_and_a_row_without_a_claim_is_as_far_as_can_be() -> None:
    found = compare_rows(TRUTH[::-1], TRUTH, COLUMNS)
    assert found.exact.tolist() == [True, True] and found.distance.tolist() == [0, 0]
    found = compare_rows(TRUTH[1:], TRUTH, COLUMNS)
    assert found.exact.tolist() == [False, True] and found.distance.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("claim", "right"),
    [
        ([30.5, 0, 1], [True, True, True]),  # half a step
        ([30.6, 0, 1], [False, True, True]),
        ([30, 1, 1], [True, False, True]),
        ([30, NAN, 1], [True, False, True]),
        ([30, 0, 1 + 4e-5], [True, True, True]),  # 1e-5 of 4.3
        ([30, 0, 1 + 5e-5], [True, True, False]),
    ],
)
def test_a_value_is_right_within_half_a_step_or_a_hundred_thousandth(
    claim: list[float], right: list[bool]
) -> None:
    assert compare_rows(np.array([claim]), TRUTH[:1], COLUMNS).right[0].tolist() == right


def test_a_value_that_is_missing_is_right_where_it_is_missing() -> None:
    truth = np.array([[30, NAN, 1]])
    assert compare_rows(truth, truth, COLUMNS).exact.tolist() == [True]


def test_the_middle_of_public_rows_is_a_row_that_can_be() -> None:
    public = np.array([[20.0, 0, 2], [40, 1, 4], [40, 1, NAN], [60, NAN, 12]])
    assert find_middle(public, COLUMNS).tolist() == [40, 1, 4]
    wards = np.array([[20.0, 0, 2], [40, 0, 4], [50, 1, 4], [60, 2, 12]])  # a median of wards is between two
    assert find_middle(wards, COLUMNS).tolist() == [45, 0, 4]
    absent = np.where([False, True, False], NAN, public)
    assert np.isnan(find_middle(absent, COLUMNS)).tolist() == [False, True, False]


def test_random_public_rows_are_different_ones_and_come_near_without_any_leak() -> None:
    rng = np.random.default_rng(0)
    public, private = (
        np.stack([rng.integers(0, 100, 200), rng.integers(0, 3, 200), rng.random(200) * 10], 1) for _ in range(2)
    )
    drawn = draw_rows(public, 50, rng)
    assert len({tuple(row) for row in drawn}) == 50 and {tuple(row) for row in drawn} <= set(map(tuple, public))
    blind = compare_rows(drawn, private[:50], COLUMNS)
    one = compare_rows(drawn[:1], private[:1], COLUMNS)
    assert (
        blind.distance.mean() < 0.12 < 0.2 < one.distance.mean()
    )  # once the best is picked, others' rows look like one's own
    assert not blind.exact.any()


def test_of_more_rows_than_are_public_each_column_has_what_public_people_have() -> None:
    public = TRUTH[[0, 0, 1]] + [[0, 0, 0], [1, 1, 1], [0, 0, 0]]
    drawn = draw_rows(public, 60, np.random.default_rng(0))
    assert {tuple(row) for row in drawn[:3]} == set(map(tuple, public)) and len(drawn) == 60
    assert all(set(some) == set(known) for some, known in zip(drawn.T, public.T, strict=True))
    assert len({tuple(row) for row in drawn}) > 10  # most of nobody
    assert len(draw_rows(public[:0], 9, np.random.default_rng(0))) == 0


def test_a_pair_is_written_as_a_person_reads_it() -> None:
    pair = write_pair("client 3, best", TRUTH[0], np.array([40.2, NAN, 1.5]), COLUMNS)
    assert pair.columns == ("age", "ward", "dose")
    assert pair.original == ("30 years", "a", "1") and pair.claimed == ("40 years", "missing", "1.5")
    assert pair.apart == pytest.approx((0.102, 1, 0.05))
