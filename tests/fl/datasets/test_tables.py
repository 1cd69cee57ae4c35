"""The tables that come with scikit-learn, as it has them; scaled by rows that no client holds."""

import numpy as np
import pytest
from sklearn import datasets

from fedaudit.fl.data.dataset import Data, Dataset, read_data
from fedaudit.fl.runtime.plugin import load

TABLES = {
    "breast_cancer": (datasets.load_breast_cancer, (569, 30)),
    "diabetes": (lambda: datasets.load_diabetes(scaled=False), (442, 10)),
    "wine": (datasets.load_wine, (178, 13)),
}


def take(name: str) -> Data:
    return read_data(load("fedaudit.fl.datasets", name, Dataset)())


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_are_those_of_scikit_learn(name: str) -> None:
    read, shape = TABLES[name]
    data, theirs = take(name), read()
    x = np.concatenate([data.train.x, data.test.x])
    assert x.shape == shape == theirs.data.shape and x.dtype == np.float64
    assert data.columns is not None and list(data.columns.names) == list(theirs.feature_names)
    ours, rows = (some[np.lexsort(some.T)] for some in (x, np.asarray(theirs.data)))
    assert np.array_equal(ours, rows)
    assert "numbers" in data.gives and "images" not in data.gives and "one scale" not in data.gives


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_scaled_by_the_test_part(name: str) -> None:
    data = take(name)
    assert data.columns is not None and data.input_shape == data.shape
    seen = data.columns.model_input(data.train.x)
    assert seen == pytest.approx((data.train.x - data.test.x.mean(0)) / data.test.x.std(0), abs=1e-5)
    assert [c.low for c in data.columns.columns] == data.test.x.min(0).tolist()
    assert data.columns.snap(data.train.x) == pytest.approx(data.train.x, rel=1e-12)  # steps are true


@pytest.mark.parametrize(("name", "classes"), [("breast_cancer", [212, 357]), ("wine", [59, 71, 48])])
def test_classes_are_as_many_as_are_published(name: str, classes: list[int]) -> None:
    data = take(name)
    assert np.bincount(np.concatenate([data.train.y, data.test.y])).tolist() == classes


def test_of_diabetes_a_number_is_predicted_in_deviations_of_the_test_part() -> None:
    data = take("diabetes")
    assert repr(data.task) == "regression" and data.width == 1 and len(data.groups) == 10
    assert (float(data.test.y.mean()), float(data.test.y.std())) == pytest.approx((0, 1), abs=1e-5)
