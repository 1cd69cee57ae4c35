"""Invented patients: the columns that were agreed on, a label for each task, and something to learn in it."""

import numpy as np
import pytest

from fedaudit.fl.data.dataset import Data, read_data
from fedaudit.fl.datasets.patients import Patients
from fedaudit.fl.runtime.errors import UserError


def take(**config: object) -> Data:
    return read_data(Patients(Patients.Config(**config)))  # type: ignore[arg-type]


def test_a_patient_is_four_numbers_and_eight_categories() -> None:
    data = take()
    assert data.columns is not None and data.input_shape == (70,)
    numbers = {c.name: (c.low, c.high, c.step) for c in data.columns.columns if c.kind == "number"}
    assert numbers == {"age": (18, 99, 1), "bmi": (15, 55, 0.1), "systolic": (80, 220, 1), "days": (0, 120, 1)}
    levels = {c.name: len(c.levels) for c in data.columns.columns if c.kind == "category"}
    assert " ".join(f"{name} {n}" for name, n in levels.items()) == (
        "sex 2 ward 6 smoking 3 job 10 marital 4 insurance 3 blood 8 area 30"
    )
    x = np.concatenate([data.train.x, data.test.x])
    assert np.array_equal(data.columns.snap(x), x)  # on the grids
    for column, values in zip(data.columns.columns, x.T, strict=True):
        assert column.low is None or column.low <= values.min() <= values.max() <= (column.high or 0)
        assert len(np.unique(values)) == len(column.levels) or column.kind == "number"


@pytest.mark.parametrize(
    ("task", "width", "shape"),
    [("classify", 3, ()), ("regression", 1, ()), ("survival", 1, (2,)), ("several", 5, (5,))],
)
def test_a_label_is_what_the_task_says(task: str, width: int, shape: tuple[int, ...]) -> None:
    data = take(task=task)
    assert repr(data.task) == task and data.width == width and data.train.y.shape[1:] == shape
    assert data.columns is not None
    assert ("days" in data.columns.names) == (task != "regression")  # what is predicted is no column


def test_the_owner_is_the_patient_and_no_patient_is_on_both_sides() -> None:
    data = take(patients=100, most_stays=4)
    assert data.train.owner is not None and data.test.owner is not None and len(data.train) > 100
    assert not set(data.train.owner.tolist()) & set(data.test.owner.tolist())
    first = data.train.x[data.train.owner == data.train.owner[0]]
    assert data.columns is not None
    for name in ("age", "sex", "blood", "area"):
        assert len(set(first[:, data.columns.names.index(name)].tolist())) == 1
    one = take(patients=100)
    assert one.train.owner is not None and not one.train.repeats_owners and data.train.repeats_owners


def test_the_same_patients_are_invented_each_time_and_say_that_they_are() -> None:
    one, other = take(), take()
    assert np.array_equal(one.train.x, other.train.x) and np.array_equal(one.train.y, other.train.y)
    assert "invented" in one.about and Patients.holds == "invented" and "invented" in Patients.title


def test_something_can_be_learned_and_not_everything() -> None:
    from sklearn.linear_model import LogisticRegression

    data = take()
    assert data.columns is not None
    x, unseen = data.columns.model_input(data.train.x), data.columns.model_input(data.test.x)
    right = LogisticRegression(max_iter=500).fit(x, data.train.y).score(unseen, data.test.y)
    often = np.bincount(data.test.y).max() / len(data.test)
    assert often + 0.1 < right < 0.9


def test_too_few_patients_are_refused() -> None:
    with pytest.raises(UserError, match="leaves a part empty"):
        take(patients=2)
