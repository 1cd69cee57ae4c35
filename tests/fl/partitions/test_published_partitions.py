"""The partitions of single papers, against the numbers the papers and their code give."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition, histogram, overlaps
from fedaudit.fl.partitions.shards import assign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load

LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 300))
CINIC = np.repeat(np.arange(10), 9000)


def split(
    name: str, clients: int, labels: Any = LABELS, owner: Any = None, seed: int = 7, **settings: Any
) -> list[Index]:
    labels = np.asarray(labels)
    made: Partition = configure(load("fedaudit.fl.partitions", name, Partition), settings, "federation.partition")
    return made.split(OwnedLabels(labels, int(labels.max()) + 1, owner), clients, np.random.default_rng(seed))


def whole(parts: list[Index], size: int) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))


@pytest.mark.parametrize("each", [1, 2, 3, 4, 7, 10])
def test_balanced_assignment_gives_distinct_classes_and_equally_many_holders(each: int) -> None:
    held = assign(10, 20, each, np.random.default_rng(each))
    assert (held.sum(1) == each).all()
    assert np.ptp(held.sum(0)) <= 1


def test_balanced_shards_split_each_class_evenly_among_its_holders() -> None:
    parts = split("balanced_shards", 7, classes_per_client=3)  # 21 holdings of 10 classes
    counts = histogram(LABELS, parts, 10)
    assert whole(parts, 3000) and (np.count_nonzero(counts, axis=1) == 3).all()
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1
    with pytest.raises(UserError, match="4 clients of 2 classes cannot share 10 classes"):
        split("balanced_shards", 4)


def test_n_class_exhaustive_gives_rebafls_sizes() -> None:
    labels = np.repeat(np.arange(10), 5000)
    for clients, size in ((100, 500), (200, 250), (500, 100)):
        parts = split("n_class_exhaustive", clients, labels=labels)
        assert {len(p) for p in parts} == {size} and whole(parts, 50_000)
        assert {len(np.unique(labels[p])) for p in parts} == {2}
    with pytest.raises(UserError, match="7 clients x 2 classes is not a multiple of 10"):
        split("n_class_exhaustive", 7)


def test_n_class_extreme_gives_client_i_the_classes_from_n_i_on() -> None:
    parts = split("n_class_extreme", 20, labels=CINIC, classes_per_client=4)
    counts = histogram(CINIC, parts, 10)
    assert np.flatnonzero(counts[3]).tolist() == [2, 3, 4, 5]  # 12 to 15 modulo 10
    assert whole(parts, 90_000) and set(counts[counts > 0]) == {9000 // 8}
    with pytest.raises(UserError, match="partition: 4 clients of 2 classes cannot share 10"):
        split("n_class_extreme", 4)


def test_t_pt_3_majors_on_cinic_have_4500_each_and_the_declared_ratios() -> None:
    parts = split("majors", 20, labels=CINIC, mode="additive")
    counts = histogram(CINIC, parts, 10)
    assert whole(parts, 90_000) and set(counts.sum(1)) == {4500}
    assert np.flatnonzero(counts[1] == 990).tolist() == [4, 5, 6, 7]  # 0.11 of 9000
    assert set(counts.ravel()) == {990, 90}
    parts = split("majors", 20, labels=CINIC, mode="ratio")
    counts = histogram(CINIC, parts, 10)
    assert whole(parts, 90_000) and set(counts.sum(1)) == {4500}
    assert set(counts.ravel()) == {978, 98}  # 10/92 and 1/92 of 9000 are 978.26 and 97.83


def test_majors_of_emnist_have_ten_times_as_much_though_classes_have_one_or_two_holders() -> None:
    labels = np.repeat(np.arange(47), 2400)
    counts = histogram(labels, split("majors", 20, labels=labels), 47)
    for column in counts.T:
        major = column > column.min() * 3
        assert major.sum() in (1, 2)
        assert column[major].mean() / column[~major].mean() == pytest.approx(10, rel=0.02)


def test_majors_refuse_more_minors_than_a_class_has() -> None:
    with pytest.raises(UserError, match=r"30 clients x 0.05 is more than the whole class"):
        split("majors", 30, mode="additive", minor=0.05)


def test_hsus_alpha_is_ten_times_as_skewed_over_ten_classes() -> None:
    labels = np.repeat(np.arange(10), 20_000)
    settings: dict[str, Any] = {"examples_per_client": 200}
    ours = split("dirichlet_hsu", 300, labels=labels, alpha=2.0, **settings)
    same = split("dirichlet_client", 300, labels=labels, alpha=0.2, **settings)
    other = split("dirichlet_client", 300, labels=labels, alpha=2.0, **settings)
    assert all(np.array_equal(a, b) for a, b in zip(ours, same, strict=True))
    held = [np.mean([len(np.unique(labels[p])) for p in parts]) for parts in (ours, other)]
    assert held[0] < held[1] - 2


def test_hsus_prior_is_that_of_the_data_and_may_lack_a_class() -> None:
    labels = np.repeat([0, 2], [30_000, 10_000])  # class 1 has no examples
    parts = split("dirichlet_hsu", 100, labels=labels, alpha=50.0, examples_per_client=100)
    mean = histogram(labels, parts, 3).sum(0) / 10_000
    assert mean == pytest.approx([0.75, 0, 0.25], abs=0.03)


def test_dirichlet_column_uses_everything_and_its_sizes_vary() -> None:
    for alpha in (1e-3, 0.5, 1e5):
        assert whole(split("dirichlet_column", 20, alpha=alpha), 3000)
    dealt = split("dirichlet_column", 2, alpha=1e-6)  # classes drawn by nobody go to anybody
    assert whole(dealt, 3000) and min(map(len, dealt)) >= 450
    assert np.std([len(p) for p in split("dirichlet_column", 20, alpha=0.5)]) > 10
    even = histogram(LABELS, split("dirichlet_column", 20, alpha=1e5), 10)
    assert np.abs(even - 15).max() <= 1


def test_natural_gives_each_client_one_persons_examples() -> None:
    owner = np.random.default_rng(0).integers(0, 12, 3000) * 5
    parts = split("natural", 12, owner=owner)
    assert whole(parts, 3000)
    assert [set(owner[p]) for p in parts] == [{5 * k} for k in range(12)]
    some = split("natural", 4, owner=owner)
    assert overlaps(some) == 0
    for p in some:
        assert np.array_equal(p, np.flatnonzero(owner == owner[p[0]]))


def test_natural_refuses_data_without_people_and_more_clients_than_people() -> None:
    with pytest.raises(UserError, match="does not say whose"):
        split("natural", 3)
    with pytest.raises(UserError, match="3 clients, but the data come from 2 people"):
        split("natural", 3, owner=np.arange(3000) % 2)


def test_quantity_skews_sizes_by_its_law_and_leaves_labels_alone() -> None:
    labels = np.repeat(np.arange(10), 10_000)
    parts = split("quantity", 200, labels=labels, sigma=1.0)
    sizes = np.array([len(p) for p in parts])
    assert whole(parts, 100_000)
    logs = np.log(sizes)
    assert stats.kstest((logs - logs.mean()) / logs.std(), "norm").pvalue > 1e-3
    assert logs.std() == pytest.approx(1.0, abs=0.15)
    largest = parts[int(sizes.argmax())]
    assert stats.chisquare(np.bincount(labels[largest])).pvalue > 1e-3
    assert {len(p) for p in split("quantity", 20, sigma=0)} == {150}
    uneven = [len(p) for p in split("quantity", 20, law="dirichlet", alpha=0.1)]
    assert sum(uneven) == 3000 and min(uneven) == 0  # empty clients are legal


def test_two_halves_are_0_to_4_and_5_to_9() -> None:
    parts = split("two_halves", 2)
    assert whole(parts, 3000)
    assert [sorted(set(LABELS[p])) for p in parts] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    with pytest.raises(UserError, match="is for 2 clients and at least 2 classes, got 3"):
        split("two_halves", 3)


def test_two_concentrations_give_seol_and_kims_case_2() -> None:
    """180 clients of one class (but where it was used up), 20 of several; one number is as a list of it."""
    labels = np.repeat(np.arange(10), 5000)
    parts = split("dirichlet_client", 200, labels=labels, alpha=[0] * 9 + [0.2])
    assert whole(parts, 50_000) and {len(p) for p in parts} == {250}
    held = np.count_nonzero(histogram(labels, parts, 10), axis=1)
    several = held[9::10]
    assert (np.delete(held, np.arange(9, 200, 10)) == 1).mean() > 0.85
    assert len(several) == 20 and 5 < several.mean() < 8
    one, again = (split("dirichlet_client", 20, alpha=a) for a in (0.2, [0.2]))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    with pytest.raises(UserError, match="alpha"):
        split("dirichlet_client", 4, alpha=[])
