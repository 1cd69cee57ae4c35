"""Facts about groups: they tell of people in small groups alone, where they are right."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.groups import (
    COUNTED,
    HELD,
    LARGEST,
    SIZE,
    average_rounds,
    choose_remedy,
    count_clients,
    count_each_kind,
    count_facts,
    count_held_by_all,
    count_known,
)
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.people import SMALL, PeopleCount, Share
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm

COUNTS = np.array([[4, 30, 0], [0, 2, 5], [1, 1, 1]])


@dataclass
class Holding:
    """Clients that hold so many examples of each class, class by class."""

    counts: NDArray[np.int64]

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return self.counts[client]

    def client_examples(self, client: int) -> Examples:
        y = np.repeat(np.arange(self.counts.shape[1]), self.counts[client])
        return Examples(x=np.zeros((len(y), 1, 1, 1), np.float32), y=y)

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        clients = range(len(self.counts))
        return {k: self.client_rows(k)[self.client_examples(k).y == label] for k in clients}

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 100 * client + np.arange(self.counts[client].sum())


TRUTH: Any = Holding(COUNTS)
CLIENTS = np.arange(3)


def hit(claimed: Any, fact: Any) -> dict[int, tuple[int, ...]]:
    (people,) = count_known(CLIENTS, np.asarray(claimed), fact, TRUTH)
    assert {k: len(rows) for k, rows in people.tested.items()} == {0: 34, 1: 7, 2: 3} == dict(people.held)
    assert people.harm is Harm.ATTRIBUTE and people.groups == ()
    return dict(people.hit)


def test_exact_counts_tell_of_groups_below_five_and_of_no_others() -> None:
    assert SMALL == 5
    assert hit(COUNTS, COUNTED) == {0: (0, 1, 2, 3), 1: (100, 101), 2: (200, 201, 202)}
    assert hit(COUNTS + 1, COUNTED) == {}
    assert hit(np.where(COUNTS == 4, 3, COUNTS), COUNTED) == {1: (100, 101), 2: (200, 201, 202)}


def test_a_class_that_is_named_tells_of_whoever_stands_in_it() -> None:
    assert hit(COUNTS > 0, HELD) == {0: (0, 1, 2, 3), 1: (100, 101), 2: (200, 201, 202)}
    assert hit(COUNTS == 0, HELD) == {}


def test_a_client_of_few_people_is_told_by_its_size_and_a_largest_group_by_its_class() -> None:
    assert hit(COUNTS.sum(axis=1), SIZE) == {2: (200, 201, 202)}
    assert hit([1, 2, 0], LARGEST) == {2: (200,)}  # the first two are five and more


def test_luck_is_what_claims_about_the_other_clients_hit() -> None:
    alike = np.tile([1, 1, 1], (3, 1))
    (people,) = count_known(CLIENTS, alike, COUNTED, TRUTH)
    assert people.luck.trials == 44 and people.luck.hits == pytest.approx(3)  # whoever passes it round
    (own,) = count_known(CLIENTS, COUNTS, COUNTED, TRUTH)
    assert own.luck.hits == 0


def count_whole(claimed: Any, fact: Any) -> PeopleCount:
    (clients,) = count_clients(CLIENTS, np.asarray(claimed), fact, TRUTH)
    assert clients.harm is Harm.CLIENT_FACT and clients.groups == ()
    assert clients.tested == {0: (0,), 1: (1,), 2: (2,)} and clients.held == {0: 1, 1: 1, 2: 1}
    return clients


def test_a_client_is_hit_where_all_that_is_stated_of_it_is_right() -> None:
    assert count_whole(COUNTS, COUNTED).hit == {0: (0,), 1: (1,), 2: (2,)}
    assert count_whole(np.where(COUNTS == 30, 29, COUNTS), COUNTED).hit == {1: (1,), 2: (2,)}
    assert count_whole((COUNTS > 0) | (COUNTS == 30), HELD).hit == {0: (0,), 1: (1,), 2: (2,)}
    assert count_whole(COUNTS > 1, HELD).hit == {0: (0,), 1: (1,)}  # of the third nothing is said
    assert count_whole([34, 7, 4], SIZE).hit == {0: (0,), 1: (1,)}  # of large clients as well
    assert count_whole([1, 1, 0], LARGEST).hit == {0: (0,), 2: (2,)}


def test_a_statement_that_is_right_of_everybody_is_luck() -> None:
    everything: Any = Holding(np.array([[4, 30, 1], [9, 2, 5], [1, 1, 1]]))
    (clients,) = count_clients(CLIENTS, np.ones((3, 3), bool), HELD, everything)
    assert clients.hit == {0: (0,), 1: (1,), 2: (2,)}
    assert clients.luck == Share(hits=3, trials=3)  # each statement once, of however many it is right
    assert count_whole(COUNTS, COUNTED).luck == Share(hits=0, trials=3)


def test_statements_are_held_against_every_other_client() -> None:
    two_alike: Any = Holding(np.array([[1, 1, 0], [2, 2, 0], [0, 0, 7], [0, 7, 7]]))
    said = two_alike.counts > 0
    (clients,) = count_clients(np.arange(4), said, HELD, two_alike)
    assert clients.luck.hits / clients.luck.trials == pytest.approx(2 / 12)
    assert clients.luck.trials == 12  # of two statements each is right of one client of three


def test_of_several_statements_about_a_client_one_that_is_right_is_enough() -> None:
    (clients,) = count_clients(np.array([0, 0, 1]), COUNTS[[2, 0, 0]], COUNTED, TRUTH)
    assert clients.hit == {0: (0,)} and clients.luck == Share(hits=1, trials=2)


def test_of_one_client_alone_there_is_no_luck() -> None:
    (alone,) = count_clients(CLIENTS[:1], COUNTS[:1], COUNTED, TRUTH)
    assert alone.hit == {0: (0,)} and alone.luck == Share()


def test_facts_about_sums_are_about_nobody() -> None:
    people, clients = count_facts(np.array([0, SEVERAL]), COUNTS[[0, 1]], COUNTED, TRUTH)
    assert set(people.tested) == set(clients.tested) == {0}
    assert count_facts(np.array([SEVERAL]), COUNTS[:1], COUNTED, TRUTH) == []


def test_kinds_of_messages_are_counted_apart_and_nobody_where_nothing_was_claimed() -> None:
    claim = {"client": np.array([0, 1, 0]), "kind": np.array(["proto_counts", "proto_counts", "label_counts"])}
    counted = count_each_kind(claim, COUNTS[[0, 1, 0]] + [[0], [0], [1]], COUNTED, TRUTH)
    people, clients = counted[::2], counted[1::2]
    assert [p.kind for p in people] == [p.kind for p in clients] == [Kind.PROTO_COUNTS, Kind.LABEL_COUNTS]
    assert [dict(p.hit) for p in people] == [{0: (0, 1, 2, 3), 1: (100, 101)}, {}]
    assert [dict(p.hit) for p in clients] == [{0: (0,), 1: (1,)}, {}]
    assert count_facts(CLIENTS[:0], COUNTS[:0], COUNTED, TRUTH) == []


def test_what_a_client_sent_in_all_rounds_is_one_claim_of_each_kind() -> None:
    claim = {
        "client": np.array([0, 1, 0, 0]),
        "kind": np.array(["local_model", "local_model", "aggregate", "local_model"]),
    }
    told, said = average_rounds(claim, np.array([[4, 0], [9, 9], [1, 1], [7, 1]]))
    assert told["client"].tolist() == [0, 1, 0] and said.tolist() == [[6, 0], [9, 9], [1, 1]]
    assert told["kind"].tolist() == ["local_model", "local_model", "aggregate"]
    _, held = average_rounds(claim, np.array([[True, True], [True, False], [False, True], [True, False]]))
    assert held.tolist() == [[True, False], [True, False], [False, True]] and held.dtype == bool
    assert average_rounds({name: some[:0] for name, some in claim.items()}, np.zeros((0, 2), bool))[1].shape == (
        0,
        2,
    )


def test_that_somebody_holds_a_class_tells_of_people_only_where_few_do_and_anybody_would_guess_it() -> None:
    """Everybody is tested, and all that is right is luck."""
    for held, hit in (([True, True, True], {}), ([False, True, True], {})):
        (people,) = count_held_by_all("sum", np.array(held), TRUTH, Kind.GLOBAL_MODEL)
        assert (people.kind, people.harm, dict(people.hit)) == (Kind.GLOBAL_MODEL, Harm.ATTRIBUTE, hit)
        assert (
            sum(map(len, people.tested.values())) == COUNTS.sum() == people.luck.trials and people.luck.hits == 0
        )
    few = Holding(np.array([[2, 30], [1, 20]]))
    (people,) = count_held_by_all("sum", np.array([True, True]), few, Kind.GLOBAL_MODEL)
    assert sum(map(len, people.hit.values())) == 3 == people.luck.hits
    (people,) = count_held_by_all("sum", np.array([False, True]), few, Kind.GLOBAL_MODEL)
    assert not people.hit and people.luck.hits == 3


def test_no_sum_hides_a_label_that_stands_beside_its_example() -> None:
    assert "split_u_shape" in choose_remedy([Kind.FEATURES.value, Kind.SMASHED.value], "add noise")
    assert choose_remedy([Kind.FEATURES.value, Kind.LABEL_COUNTS.value], "add noise") == "add noise"
    assert choose_remedy([], "add noise") == "add noise"
