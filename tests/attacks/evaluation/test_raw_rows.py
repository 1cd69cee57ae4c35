"""Rows of a table are found however they are written, and other people's are not; few bits tell nothing."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from fedaudit.attacks.evaluation.raw_rows import RowFinder, count_bits, count_needed, list_readings
from fedaudit.fl.datasets.patients import Patients

Rows = NDArray[np.float64]
WRITTEN = 20


class Table:
    """A client's rows, rows that everybody has, held-out rows, and rows of somebody who sent nothing."""

    def __init__(self, x: Rows, seed: int = 1) -> None:
        order, n = np.random.default_rng(seed).permutation(len(x)), min(100, len(x) // 4)
        self.own, self.public, self.held, self.others = (x[order[k * n : (k + 1) * n]] for k in range(4))

    def find(self, *arrays: NDArray[np.generic]) -> set[int]:
        return {*RowFinder(self.own, self.public, self.held).find(arrays)}

    def find_others(self, *arrays: NDArray[np.generic]) -> set[int]:
        return {*RowFinder(self.others, self.public, self.held).find(arrays)}


@cache
def table(name: str, seed: int = 1) -> Table:
    rows = {
        "cancer": lambda: load_breast_cancer().data,
        "diabetes": lambda: load_diabetes(scaled=False).data,
        "wine": lambda: load_wine().data,
        "patients": lambda: Patients(Patients.Config(patients=750)).load().train.x,
    }
    return Table(np.asarray(rows[name](), np.float64), seed)


TABLES = ("cancer", "diabetes", "wine", "patients")
LABELS = (np.arange(WRITTEN) % 2).astype(np.float64)[:, None]


def scale(t: Table) -> Rows:
    return (t.own[:WRITTEN] - t.public.mean(axis=0)) / t.public.std(axis=0)


def by_own(t: Table, ddof: int = 0) -> Rows:
    return ((t.own - t.own.mean(axis=0)) / t.own.std(axis=0, ddof=ddof))[:WRITTEN]


WAYS: dict[str, Callable[[Table], NDArray[np.generic]]] = {
    "as they are": lambda t: t.own[:WRITTEN],
    "in single precision": lambda t: t.own[:WRITTEN].astype(np.float32),
    "columns first": lambda t: t.own[:WRITTEN].T.copy(),
    "flat": lambda t: t.own[:WRITTEN].ravel(),
    "flat, column by column": lambda t: t.own[:WRITTEN].T.ravel(),
    "with a label": lambda t: np.hstack([t.own[:WRITTEN], LABELS]),
    "label first, flat by columns": lambda t: np.hstack([LABELS, t.own[:WRITTEN]]).T.ravel(),
    "by the sender's deviation": lambda t: by_own(t).astype(np.float32),
    "by the deviation of n - 1": lambda t: by_own(t, 1).astype(np.float32),
    "in half precision": lambda t: scale(t).astype(np.float16),
    "by the public's range": lambda t: (t.own[:WRITTEN] - t.public.min(axis=0)) / np.ptp(t.public, axis=0),
    "from -1 to 1": lambda t: 2 * (t.own[:WRITTEN] - t.own.min(axis=0)) / np.ptp(t.own, axis=0) - 1,
    "with the other sign": lambda t: -scale(t).astype(np.float32),
    "from the greatest down": lambda t: (t.public.max(axis=0) - t.own[:WRITTEN]) / np.ptp(t.public, axis=0),
    "less the mean": lambda t: t.own[:WRITTEN] - t.own.mean(axis=0),
    "in another order of rows": lambda t: scale(t)[np.random.default_rng(3).permutation(WRITTEN)],
    "backwards": lambda t: scale(t)[::-1, ::-1].astype(np.float32),
    "among zeros": lambda t: np.pad(scale(t), ((2, 3), (4, 5))).astype(np.float32),
    "in three dimensions": lambda t: scale(t).reshape(4, 5, -1).astype(np.float32),
    "after a layer": lambda t: np.vstack([np.random.default_rng(0).normal(size=(60, t.own.shape[1])), scale(t)]),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_found_however_they_are_written_and_other_peoples_are_not(name: str, way: str) -> None:
    t, sent = table(name), WAYS[way](table(name))
    assert t.find(sent) == {*range(WRITTEN)} and not t.find_others(sent)


@pytest.mark.parametrize("name", TABLES)
def test_a_subset_of_the_rows_is_found_and_no_more(name: str) -> None:
    t = table(name)
    assert t.find(t.own[1:40:3].astype(np.float32)) == {*range(1, 40, 3)}


@pytest.mark.parametrize("name", ["cancer", "diabetes", "patients"])
def test_whole_numbers_of_rows_are_found_where_they_tell_enough(name: str) -> None:
    t = table(name)
    rounded, cut = np.rint(t.own[:WRITTEN]).astype(np.int64), t.own[:WRITTEN].astype(np.int32)
    for whole in (rounded, cut) if name == "patients" else (cut,):
        assert len(t.find(whole) & {*range(WRITTEN)}) >= 17 and not t.find_others(whole)


@pytest.mark.parametrize("name", ["cancer", "diabetes", "wine"])
def test_one_row_in_noise_and_a_mean_of_one_are_found(name: str) -> None:
    t, noise = table(name), np.random.default_rng(0).normal(size=400).astype(np.float32)
    assert t.find(np.concatenate([noise[:137], scale(t)[3].astype(np.float32), noise[137:]])) == {3}
    assert t.find(np.stack([t.own[5], t.own[:9].mean(axis=0), t.own[20:40].mean(axis=0)]).astype("f4")) == {5}


def test_of_twelve_small_columns_one_row_is_not_told_and_several_together_are() -> None:
    t = table("patients")
    finder = RowFinder(t.own, t.public, t.held)
    limits = finder.count_limits([np.zeros(5000)])
    assert limits.alone < 0.5 and 3 < limits.enough < 8
    noise = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    one, several = t.own[3].astype(np.float32), t.own[3:12].astype(np.float32)
    assert not finder.find([np.concatenate([noise, one])])
    assert {*finder.find([np.concatenate([noise, several.ravel()])])} == {*range(3, 12)}


@pytest.mark.parametrize("name", TABLES)
def test_what_the_docstring_leaves_out_is_not_found(name: str) -> None:
    t, rng = table(name), np.random.default_rng(5)
    noisy = by_own(t) + 0.1 * rng.normal(size=(WRITTEN, t.own.shape[1]))
    assert not t.find(noisy) and not t.find(0.1 * scale(t))


@pytest.mark.parametrize("name", ["diabetes", "wine", "patients"])
def test_statistics_of_rows_are_nobodys(name: str) -> None:
    t = table(name)
    x, rng = t.own, np.random.default_rng(2)
    histograms = np.stack([np.histogram(column, 20)[0] for column in x.T])
    sent = [x.mean(axis=0), np.cov(x.T), x.T @ x, histograms, x.min(axis=0), x.max(axis=0)]
    sent += [np.quantile(x, [0.1, 0.25, 0.5, 0.75, 0.9], axis=0), np.median(x[1:], axis=0), np.sort(x, axis=0)]
    sent += [rng.normal(size=(64, x.shape[1])), rng.integers(0, 100, (300, x.shape[1])), np.arange(5000)]
    assert not t.find(*sent) and not t.find_others(*sent)


def test_seven_columns_of_a_greatest_value_may_be_one_patients() -> None:
    t = table("cancer")
    alike = (t.own == t.own.max(axis=0)).sum(axis=1)
    assert alike.max() == 7 and t.find(t.own.max(axis=0)) == {*np.flatnonzero(alike == 7)}


def test_bits_and_what_is_needed_are_those_of_the_formula() -> None:
    assert count_bits(0, 100) == pytest.approx(6.658211, abs=1e-6)
    assert count_bits(np.array([100, 49]), 100) == pytest.approx([0, 1.014355], abs=1e-6)
    assert count_needed(1000, 100, 5) == pytest.approx(38.931569, abs=1e-6)


def test_a_column_of_the_same_written_number_counts_once() -> None:
    """Half of the columns are zero in a few rows: zeros in a message are none of these."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 24))
    x[:8, :12] = 0
    finder = RowFinder(x[:100], x[100:200], x[200:])
    assert not finder.find([np.zeros(5000)]) and not finder.find([np.zeros((40, 24), np.int64)])
    assert {*finder.find([x[:8]])} == {*range(8)}


def test_what_is_missing_in_a_row_tells_nothing() -> None:
    t = table("cancer")
    own = t.own.copy()
    own[:, 4] = np.nan
    own[3, 5:9] = np.nan
    assert {*RowFinder(own, t.public, t.held).find([own[:5].astype(np.float32)])} == {0, 1, 2, 3, 4}


def test_without_rows_or_with_one_column_nothing_is_found() -> None:
    assert not RowFinder(np.zeros((0, 5))).find([np.zeros(100)])
    assert not RowFinder(np.arange(9.0)[:, None]).find([np.arange(9.0)])
    assert RowFinder(np.zeros((0, 5))).count_limits([np.zeros(100)]).enough == 0


def test_readings_that_are_the_same_count_once() -> None:
    x = np.array([[0.0, 3.0], [3.0, 0.0], [0.0, 0.0], [3.0, 3.0]])
    ways = list_readings(x, 2 * x + 1)
    assert len({(r.offset.tobytes(), r.factor.tobytes()) for r in ways}) == len(ways)
    assert len(list_readings(x, x)) == len(list_readings(x, None)) < len(ways) <= 22
    assert ways[0].words == "as they are" and not ways[0].offset.any()


@pytest.mark.nightly
@pytest.mark.parametrize("name", TABLES)
def test_of_many_tables_no_held_out_row_is_ever_found(name: str) -> None:
    found = 0
    for seed in range(2, 22):
        t = table(name, seed)
        for way in WAYS.values():
            found += len(t.find_others(way(t)))
    assert not found


@pytest.mark.nightly
def test_ten_million_numbers_take_seconds_of_processor() -> None:
    import time

    t, numbers = table("cancer"), np.random.default_rng(0).normal(size=(10_000, 1_000)).astype(np.float32)
    begin = time.process_time()
    assert not t.find(numbers)
    assert time.process_time() - begin < 20


def test_a_category_of_several_numbers_is_one_column() -> None:
    data = Patients(Patients.Config(patients=750)).load()
    t, columns = Table(data.train.x), data.columns
    assert columns is not None
    own, public, held, others = (columns.model_input(x) for x in (t.own, t.public, t.held, t.others))
    whole = RowFinder(own, public, held, spans=columns.spans)
    noise = np.random.default_rng(0).normal(size=300).astype(np.float32)
    sent = np.concatenate([noise, own[:8].ravel()])
    assert {*whole.find([sent])} == {*range(8)}
    assert not RowFinder(own, public, held).find([sent])  # zeros and ones are everywhere
    assert not RowFinder(others, public, held, spans=columns.spans).find([sent])
    assert not whole.find([np.zeros((90, own.shape[1]))]) and not whole.find([np.eye(own.shape[1])])
