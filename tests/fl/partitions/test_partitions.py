"""What every partition promises, and the known answers of the ones with a rule to check."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition, histogram, overlaps
from fedaudit.fl.partitions._shares import largest_remainder
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load, names

LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 300))
OWNER = np.repeat(np.arange(30), 100)
ALL = [n for n in names("fedaudit.fl.partitions") if n not in ("two_halves",)]


def part(name: str, **settings: Any) -> Partition:
    made: Partition = configure(load("fedaudit.fl.partitions", name, Partition), settings, "federation.partition")
    return made


def split(name: str, clients: int, labels: Any = LABELS, seed: int = 7, **settings: Any) -> list[Index]:
    labels = np.asarray(labels)
    told = OwnedLabels(labels, int(labels.max()) + 1, OWNER)
    return part(name, **settings).split(told, clients, np.random.default_rng(seed))


def classes_held(parts: list[Index]) -> list[int]:
    return [len(np.unique(LABELS[p])) for p in parts]


@pytest.mark.parametrize("name", ALL)
def test_every_partition_gives_each_client_distinct_ascending_indices(name: str) -> None:
    parts = split(name, 20)
    assert len(parts) == 20
    for p in parts:
        assert p.dtype == np.int64 and (np.diff(p) > 0).all()
        assert len(p) == 0 or (p[0] >= 0 and p[-1] < len(LABELS))


@pytest.mark.parametrize("name", ALL)
def test_the_same_generator_gives_the_same_split_and_another_gives_another(name: str) -> None:
    first, again, other = split(name, 20), split(name, 20), split(name, 20, seed=8)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_every_partition_describes_itself_in_a_sentence(name: str) -> None:
    assert part(name).title and len(part(name).describe()) > 20


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards", "dirichlet_client"])
def test_nothing_is_lost_and_nothing_is_shared(name: str) -> None:
    parts = split(name, 20)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
    assert overlaps(parts) == 0


def test_largest_remainder_sums_exactly_and_rounds_the_known_way() -> None:
    rng = np.random.default_rng(0)
    assert largest_remainder(10, np.array([0.45, 0.35, 0.2]), rng).sum() == 10
    assert largest_remainder(7, np.array([5.0, 3.0, 2.0]), rng).tolist() == [4, 2, 1]  # 3.5 2.1 1.4
    assert largest_remainder(0, np.array([1.0, 0.0]), rng).tolist() == [0, 0]
    assert largest_remainder(10, np.array([0.3, 0.7]), rng).tolist() == [3, 7]
    for _ in range(200):
        shares, total = rng.random(9) ** 8, int(rng.integers(0, 50))
        counts = largest_remainder(total, shares, rng)
        assert counts.sum() == total
        assert (np.abs(counts - total * shares / shares.sum()) < 1).all()


def test_equal_remainders_do_not_always_favour_the_same_client() -> None:
    rng = np.random.default_rng(0)
    winners = {int(largest_remainder(1, np.ones(3), rng).argmax()) for _ in range(60)}
    assert winners == {0, 1, 2}


def test_iid_sizes_differ_by_one_at_most_and_labels_match_the_whole() -> None:
    parts = split("iid", 7)
    assert {len(p) for p in parts} == {428, 429}
    assert stats.chisquare(histogram(LABELS, split("iid", 2), 10)[0]).pvalue > 1e-3


def test_more_clients_than_examples_leaves_some_empty() -> None:
    parts = split("iid", 5, labels=[0, 1, 1])
    assert sorted(map(len, parts)) == [0, 0, 1, 1, 1]


def test_n_class_gives_each_client_its_number_of_classes_in_equal_parts() -> None:
    counts = histogram(LABELS, split("n_class", 6, classes_per_client=3, examples_per_client=100), 10)
    for row in counts:
        assert sorted(row[row > 0]) == [33, 33, 34]


def test_n_class_shares_examples_only_where_a_class_ran_out() -> None:
    assert overlaps(split("n_class", 20, classes_per_client=10, examples_per_client=150)) == 0
    crowded = split("n_class", 20, classes_per_client=10, examples_per_client=300)
    assert overlaps(crowded) == 3000  # each class is wanted 600 times and has 300 examples
    demand = histogram(LABELS, split("n_class", 20, examples_per_client=400), 10).sum(0)
    assert overlaps(split("n_class", 20, examples_per_client=400)) == np.clip(demand - 300, 0, 300).sum()


def test_n_class_cycles_a_list_of_sizes_over_the_clients() -> None:
    parts = split("n_class", 5, examples_per_client=[50, 10])
    assert [len(p) for p in parts] == [50, 10, 50, 10, 50]


def test_clustered_gives_client_k_the_classes_of_cluster_k_mod_5() -> None:
    assert classes_held(split("clustered", 20)) == [2, 2, 3, 3, 5] * 4


def test_dirichlet_tends_to_iid_for_large_alpha_and_to_one_holder_a_class_for_small() -> None:
    even = histogram(LABELS, split("dirichlet", 10, alpha=1e6), 10)
    assert np.abs(even - 30).max() <= 1
    single = histogram(LABELS, split("dirichlet", 10, alpha=1e-4), 10)
    assert (single.max(axis=0) == 300).all()


def test_dirichlet_shares_have_the_spread_of_the_dirichlet() -> None:
    labels, alpha, clients = np.zeros(100_000, dtype=np.int64), 0.5, 8
    shares = [len(split("dirichlet", clients, labels=labels, seed=s, alpha=alpha)[0]) / 1e5 for s in range(150)]
    law = stats.beta(alpha, alpha * (clients - 1))
    assert stats.kstest(shares, law.cdf).pvalue > 1e-3


CIFAR = np.repeat(np.arange(10), 5000)


def test_t_pt_4_at_alpha_005_with_50_clients_some_are_tiny_unless_the_rules_are_on() -> None:
    free = [len(p) for p in split("dirichlet", 50, labels=CIFAR, alpha=0.05)]
    assert min(free) < 10 and sum(free) == 50_000
    ruled = [len(p) for p in split("dirichlet", 50, labels=CIFAR, alpha=0.05, balance=True, min_examples=10)]
    assert min(ruled) >= 10 and sum(ruled) == 50_000
    assert max(ruled) < 6000  # a full client gets no further class; FedDC's log has 4600


def test_dirichlet_refuses_a_minimum_that_cannot_be_had() -> None:
    with pytest.raises(UserError, match="need 4000, the data have 3000"):
        split("dirichlet", 20, min_examples=200)


def test_t_pt_2_alpha_02_and_250_draws_give_64_distinct_classes() -> None:
    labels = np.repeat(np.arange(10), 60_000)
    parts = split("dirichlet_client", 1000, labels=labels, alpha=0.2, examples_per_client=250)
    assert {len(p) for p in parts} == {250}
    assert np.mean([len(np.unique(labels[p])) for p in parts]) == pytest.approx(6.4, abs=0.2)


def test_dirichlet_client_at_alpha_0_gives_one_class_uniformly_while_stock_lasts() -> None:
    parts = split("dirichlet_client", 200, alpha=0, examples_per_client=1)
    counts = histogram(LABELS, parts, 10)
    assert (counts.max(1) == 1).all()
    assert stats.chisquare(counts.sum(0)).pvalue > 1e-3
    few = histogram(LABELS, split("dirichlet_client", 3, alpha=0, examples_per_client=90), 10)
    assert (np.count_nonzero(few, axis=1) == 1).all()


def test_dirichlet_client_takes_the_last_example_when_classes_run_out() -> None:
    for alpha in (0.0, 1e-3, 0.3):
        parts = split("dirichlet_client", 30, alpha=alpha, examples_per_client=100)
        assert {len(p) for p in parts} == {100} and overlaps(parts) == 0
    with pytest.raises(UserError, match="want 3030 examples, the data have 3000"):
        split("dirichlet_client", 30, examples_per_client=101)


def test_the_two_dirichlets_are_different_experiments() -> None:
    by_class, by_client = (split("dirichlet", 20, alpha=0.3), split("dirichlet_client", 20, alpha=0.3))
    assert {len(p) for p in by_client} == {150}
    assert np.std([len(p) for p in by_class]) > 20


def test_shards_are_single_class_and_dealt_without_replacement() -> None:
    parts = split("shards", 20, shards_per_client=2)  # 4 shards of 75 a class
    counts = histogram(LABELS, parts, 10)
    assert set(counts.ravel()) <= {0, 75, 150} and (counts.sum(1) == 150).all()
    assert 0 < (counts == 150).sum() < 10  # two shards of one class can fall to one client
    with pytest.raises(UserError, match="7 clients x 3 shards is not a multiple of 10"):
        split("shards", 7, shards_per_client=3)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("n_class", {"classes_per_client": 11}, "classes_per_client is 11, but the data have 10"),
        ("n_class", {"examples_per_client": 1000}, "may need 500 examples of one class; class"),
        ("n_class", {"examples_per_client": 1}, "a client of 1 examples cannot hold 2"),
        ("n_class", {"examples_per_client": 0}, "examples_per_client must be >= 1 or a list, got 0"),
        ("n_class", {"classes_per_client": 0}, "federation.partition.classes_per_client"),
        ("dirichlet", {"alpha": 0}, "federation.partition.alpha"),
        ("dirichlet", {"alpha": float("inf")}, "federation.partition.alpha"),
        ("dirichlet_client", {"alpha": -1}, "federation.partition.alpha"),
        ("clustered", {"classes_per_cluster": [2, 0]}, r"classes_per_cluster\[1\] must be >= 1, got 0"),
        ("iid", {"alpha": 1}, r"unknown key federation\.partition\.alpha"),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        split(name, 5, **settings)
