"""Columns of a table: what a network is given, what a person reads, and Gower's distance."""

import re

import numpy as np
import pytest

from fedaudit.fl.data.columns import Column, Columns, read_columns
from fedaudit.fl.runtime.errors import UserError

NAN = float("nan")
AGE = Column(name="age", unit="years", step=1, low=10, high=90)
WARD = Column(name="ward", kind="category", levels=("a", "b", "c"))
SEX = Column(name="sex", kind="category", levels=("f", "m"), missing=True)
BMI = Column(name="bmi", step=0.1, low=15, high=55, missing=True)


def table(*columns: Column, public: list[list[float]]) -> Columns:
    return Columns(columns=columns).learn(np.array(public))


def test_gowers_distance_is_the_mean_over_columns() -> None:
    columns = Columns(columns=(AGE, WARD, SEX))
    a, b = np.array([50.0, 2, 0]), np.array([60.0, 2, 1])
    assert columns.differences(a, b).tolist() == [0.125, 0, 1]
    assert columns.distance(a, b) == 0.375
    assert columns.distance(b, a) == 0.375 and columns.distance(a, a) == 0


def test_a_value_that_is_missing_in_one_row_alone_is_as_far_as_can_be() -> None:
    columns = Columns(columns=(BMI, SEX))
    assert columns.distance(np.array([NAN, NAN]), np.array([NAN, NAN])) == 0
    assert columns.differences(np.array([NAN, 0]), np.array([20, NAN])).tolist() == [1, 1]
    assert columns.differences(np.array([1000.0, 0]), np.array([20.0, 0])).tolist() == [1, 0]


def test_all_pairs_are_compared_at_once() -> None:
    columns = Columns(columns=(AGE, WARD))
    rows = np.array([[10.0, 0], [90.0, 0], [90.0, 1]])
    assert columns.distance(rows[:, None], rows[None]).tolist() == [[0, 0.5, 1], [0.5, 0, 0.5], [1, 0.5, 0]]


def test_a_network_is_given_numbers_by_public_rows_categories_one_hot_and_flags() -> None:
    columns = table(AGE, WARD, SEX, public=[[40, 0, 0], [60, 1, 1]])  # mean 50, deviation 10
    inputs = columns.model_input(np.array([[70.0, 2, NAN], [50.0, 0, 1]]))
    assert inputs.dtype == np.float32 and columns.width == 7
    assert inputs.tolist() == [[2, 0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 1, 0]]
    assert [columns.spans[i] for i in range(3)] == [slice(0, 1), slice(1, 4), slice(4, 7)]


def test_the_scale_is_that_of_public_rows_whatever_clients_hold() -> None:
    columns = table(BMI, public=[[20], [30], [NAN]])
    assert (columns.mean, columns.std) == ((25.0,), (5.0,))
    assert columns.model_input(np.array([[1000.0]])).tolist() == [[195, 0]]


def test_a_range_that_is_not_declared_is_that_of_public_rows() -> None:
    learnt = table(Column(name="dose"), Column(name="same"), public=[[2, 7], [8, 7]])
    assert (learnt.columns[0].low, learnt.columns[0].high) == (2, 8)
    assert learnt.std[1] == 1  # a column of one value divides by no zero
    assert table(AGE, public=[[40], [60]]).columns[0] == AGE  # declared


def test_inputs_are_read_back_as_rows() -> None:
    columns = table(AGE, WARD, SEX, BMI, public=[[40, 0, 0, 22.5], [60, 1, 1, 31]])
    rows = np.array([[18.0, 0, 1, 22.3], [90.0, 2, NAN, NAN], [51.0, 1, 0, 54.9]])
    read = columns.read_input(columns.model_input(rows))
    assert read == pytest.approx(rows, rel=1e-6, nan_ok=True)
    assert columns.snap(read) == pytest.approx(rows, abs=0, nan_ok=True)  # to the last bit


def test_a_row_is_written_as_a_person_reads_it() -> None:
    columns = Columns(columns=(AGE, WARD, SEX, BMI, Column(name="dose", unit="mg")))
    row = np.array([51.6, 1, NAN, 22.34, 0.123456789])
    assert columns.write(row) == ("52 years", "b", "missing", "22.3", "0.123457 mg")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"low": 1.0}, "one end of its range"),
        ({"low": 2.0, "high": 1.0}, "the least first"),
        ({"step": 0.0}, "a step of 0"),
        ({"levels": ("a",)}, "is a number, and has levels"),
        ({"kind": "category"}, "levels are missing"),
        ({"kind": "category", "levels": ("a", "a")}, "repeat themselves"),
        ({"kind": "category", "levels": ("a", "b"), "unit": "kg"}, "has a unit"),
    ],
)
def test_a_column_that_contradicts_itself_is_refused(column: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Column(name="x", **column)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[50.0, 0]], r"float64 \[1, 2\], expected float64 \[N, 3\]"),
        ([[50.0, 0, NAN], [NAN, 0, 0]], "without 'age' in row 1"),
        ([[50.0, 3, 0]], "in column 'ward' that are none of its 3 levels"),
        ([[50.0, 0.5, 0]], "in column 'ward'"),
        ([[float("inf"), 0, 0]], "infinite in column 'age'"),
        ([[50.0, 2, NAN]], ""),
    ],
)
def test_rows_that_are_not_of_the_columns_are_named(rows: list[list[float]], says: str) -> None:
    found = Columns(columns=(AGE, WARD, SEX)).misfit(np.array(rows))

    assert re.search(says, found) if says else not found


def test_columns_are_read_from_a_schema() -> None:
    given = {
        "age": {"kind": "number", "unit": "years", "step": 1, "low": 10, "high": 90},
        "ward": {"kind": "category", "levels": ["a", "b", "c"]},
    }
    assert read_columns(given).columns == (AGE, WARD)
    assert read_columns({"x": {"kind": "category", "levels": [1, 2]}}).columns[0].levels == ("1", "2")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"age": {"kind": "numbr"}}, "columns.age.kind must be"),
        ({"age": {"knd": "number"}}, "unknown key columns.age.knd"),
        ({"age": 3}, "columns.age must be a group"),
        ({"yes": {"kind": "category", "levels": [True, False]}}, "levels has True"),
        ({}, "no columns"),
    ],
)
def test_a_schema_that_is_wrong_is_refused_by_name(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_columns(given)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="two columns 'age'"):
        Columns(columns=(AGE, AGE))
