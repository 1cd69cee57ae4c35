"""Sorting by a network is sorting, Bulyan's window is the nearest values, and rows have room for all uploads."""

import numpy as np
import pytest
import torch

from fedaudit.fl.aggregation.aggregator import Averages
from fedaudit.fl.aggregators._rows import by_columns, gram, middle, nearest, select_ranks
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.runtime.streams import Streams


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 11, 20, 33, 100])
@pytest.mark.parametrize("values", [3, 10_000])  # many equal ones, and hardly any
def test_rows_come_in_order_and_their_middle_is_the_median(n: int, values: int) -> None:
    block = np.random.default_rng(n).integers(0, values, (n, 57)).astype(np.float32)
    expected = np.sort(block, axis=0)
    assert np.array_equal(np.stack(select_ranks(block.copy(), range(n))), expected)
    some = [0, n // 3, n - 1]
    assert np.array_equal(np.stack(select_ranks(block.copy(), some)), expected[some])
    assert np.array_equal(middle(block.copy()), np.median(block.astype(np.float64), axis=0))


def test_a_number_that_is_none_stays_in_its_column_and_counts_as_the_largest() -> None:
    block = np.array([[3, np.nan], [1, 5], [2, 4]], dtype=np.float32)
    assert middle(block).tolist() == [2, 5]


@pytest.mark.parametrize("values", [4, 50, 10**6])  # ties between values, between distances, and none
@pytest.mark.parametrize(("m", "most"), [(5, 3), (12, 4), (9, 9), (6, 1)])
def test_bulyan_averages_the_values_nearest_to_the_median_and_of_equals_the_first(
    values: int, m: int, most: int
) -> None:
    block = np.random.default_rng(values + m).integers(0, values, (m, 200)).astype(np.float32)
    centre = np.median(block.astype(np.float64), axis=0)
    order = np.abs(block - centre).argsort(axis=0, kind="stable")[:most]
    expected = np.take_along_axis(block, order, axis=0).mean(axis=0, dtype=np.float64)
    assert nearest(block, most) == pytest.approx(expected, rel=1e-12)


def test_few_and_many_blocks_of_columns_give_the_same() -> None:
    rows = torch.randn(5, 70 * 4096 + 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(by_columns(rows, middle), rows.double().median(0).values)
    centred = rows.double() - rows[0].double()
    assert torch.allclose(gram(rows, rows[0]), centred @ centred.T, rtol=1e-12)


def test_uploads_from_one_start_and_from_several_are_changes_from_their_own() -> None:
    averages = Averages(Median(), 0, Streams(1), {}, ("w",))
    model = averages.begin()
    starts = [{"w": torch.tensor([float(k // 10)])} for k in range(20)]  # ten from 0, ten from 1
    for k, start in enumerate(starts):
        model.add(k, {"w": start["w"] + 2.0}, 1.0, start)
    # all changed by 2, from a start that is 0.5 on average
    assert model.value()["w"].tolist() == [2.5]


def test_uploads_of_different_sizes_are_no_rows_of_one_model() -> None:
    model = Averages(Median(), 0, Streams(1), {}, ("w",)).begin()
    model.add(0, {"w": torch.zeros(3)}, 1.0, {})
    with pytest.raises(ValueError, match="3 and 2 weights"):
        model.add(1, {"w": torch.zeros(2)}, 1.0, {})
