"""Facts about groups: they tell of people in small groups alone, where they are right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Images
from fedaudit.attacks.evaluation.groups import (
    choose_remedy,
    count_each_kind,
    count_known,
    is_exact,
    is_held,
    is_largest,
    is_whole,
)
from fedaudit.attacks.people import SMALL
from fedaudit.fl.kinds import Kind

COUNTS = np.array([[4, 30, 0], [0, 2, 5], [1, 1, 1]])


@dataclass
class Held:
    """Clients that hold so many examples of each class, class by class."""

    counts: NDArray[np.int64]

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return self.counts[client]

    def client_images(self, client: int) -> Images:
        y = np.repeat(np.arange(self.counts.shape[1]), self.counts[client])
        return Images(x=np.zeros((len(y), 1, 1, 1), np.float32), y=y)

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 100 * client + np.arange(self.counts[client].sum())


TRUTH: Any = Held(COUNTS)
CLIENTS = np.arange(3)


def hit(claimed: Any, rule: Any) -> dict[int, tuple[int, ...]]:
    (people,) = count_known(CLIENTS, np.asarray(claimed), rule, TRUTH, "the size is known")
    assert {k: len(rows) for k, rows in people.tested.items()} == {0: 34, 1: 7, 2: 3} == dict(people.held)
    return dict(people.hit)


def test_exact_counts_tell_of_groups_below_five_and_of_no_others() -> None:
    assert SMALL == 5
    assert hit(COUNTS, is_exact) == {0: (0, 1, 2, 3), 1: (100, 101), 2: (200, 201, 202)}
    assert hit(COUNTS + 1, is_exact) == {}
    assert hit(np.where(COUNTS == 4, 3, COUNTS), is_exact) == {1: (100, 101), 2: (200, 201, 202)}


def test_a_class_that_is_named_tells_of_whoever_stands_in_it() -> None:
    assert hit(COUNTS > 0, is_held) == {0: (0, 1, 2, 3), 1: (100, 101), 2: (200, 201, 202)}
    assert hit(COUNTS == 0, is_held) == {}


def test_a_client_of_few_people_is_told_by_its_size_and_a_largest_group_by_its_class() -> None:
    assert hit(COUNTS.sum(axis=1), is_whole) == {2: (200, 201, 202)}
    assert hit([1, 2, 0], is_largest) == {2: (200,)}  # the first two are five and more


def test_luck_is_what_claims_about_the_other_clients_hit() -> None:
    alike = np.tile([1, 1, 1], (3, 1))
    (people,) = count_known(CLIENTS, alike, is_exact, TRUTH, "the size is known")
    assert people.luck.trials == 44 and people.luck.hits == pytest.approx(3)  # whoever passes it round
    (own,) = count_known(CLIENTS, COUNTS, is_exact, TRUTH, "the size is known")
    assert own.luck.hits == 0


def test_kinds_of_messages_are_counted_apart_and_nobody_where_nothing_was_claimed() -> None:
    claim = {"client": np.array([0, 1, 0]), "kind": np.array(["proto_counts", "proto_counts", "label_counts"])}
    counted = count_each_kind(claim, COUNTS[[0, 1, 0]] + [[0], [0], [1]], is_exact, TRUTH, "the size is known")
    assert [p.kind for p in counted] == [Kind.PROTO_COUNTS, Kind.LABEL_COUNTS]
    assert [dict(p.hit) for p in counted] == [{0: (0, 1, 2, 3), 1: (100, 101)}, {}]
    assert count_known(CLIENTS[:0], COUNTS[:0], is_exact, TRUTH, "the size is known") == []


def test_no_sum_hides_a_label_that_stands_beside_its_example() -> None:
    assert "split_u_shape" in choose_remedy([Kind.FEATURES.value, Kind.SMASHED.value], "add noise")
    assert choose_remedy([Kind.FEATURES.value, Kind.LABEL_COUNTS.value], "add noise") == "add noise"
    assert choose_remedy([], "add noise") == "add noise"
