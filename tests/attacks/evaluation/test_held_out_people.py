"""Whose luck is whose: held-out people are of the clients' own distribution, or nothing follows from them."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import OF_OTHERS, Examples, Unseen
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.trials import Pools
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.audit.verdict.people import UNLIKE, bound_people
from fedaudit.fl.threats.threat import Harm
from tests.attacks.world import World

EACH, HELD_OUT = 60, 300


def make_people(start: int, number: int) -> Examples:
    x = np.arange(start, start + number, dtype=np.float32)
    return Examples(x=x[:, None, None, None], y=np.zeros(number, np.int64))


class TwoHospitals:
    """Two clients of 60 people, 300 held-out people of a third hospital, and what the two held out themselves."""

    reference, auxiliary = make_people(5000, HELD_OUT), make_people(9000, 0)

    def __init__(self, own: Mapping[int, int]) -> None:
        self._own = {k: make_people(1000 + 500 * k, number) for k, number in own.items()}

    def client_examples(self, client: int) -> Examples:
        return make_people(EACH * client, EACH)

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return EACH * client + np.arange(EACH)

    def unseen(self, clients: Collection[int]) -> Unseen:
        own = [self._own[k].x for k in sorted(clients) if k in self._own]
        if not own:
            return Unseen(self.reference, OF_OTHERS)
        return Unseen(Examples(x=np.concatenate(own), y=np.zeros(sum(map(len, own)), np.int64)), "their own")


def score(truth: Any, client: int, lift: float) -> ScoredPeople:
    """Nobody was trained on; people of the two hospitals score higher by `lift` than those of the third."""
    rng, unseen = np.random.default_rng(client), truth.unseen([client])
    own = rng.normal(size=len(unseen.images)) + lift * unseen.is_alike
    return ScoredPeople(
        client=client,
        rows=truth.client_rows(client).tolist(),
        scores=rng.normal(size=EACH) + lift,
        held_out=fingerprints(unseen.images.x),
        held_out_scores=own,
    )


def count(own: Mapping[int, int], lift: float = 3.0) -> PeopleCount:
    truth: Any = TwoHospitals(own)
    return count_flagged([score(truth, k, lift) for k in (0, 1)], [], [0, 1], truth)[0]


def test_people_of_another_hospital_say_nothing_of_members_who_score_higher() -> None:
    people = count({})
    hits = sum(map(len, people.hit.values()))
    assert hits > 60 and not people.is_alike
    assert bound_people(replace(people, is_alike=True), alpha=0.01).at_least > 50  # what was said before
    bound = bound_people(people, alpha=0.01)
    assert (bound.at_least, bound.at_most, bound.groups, bound.reason) == (0, None, (), UNLIKE)


def test_beside_its_own_people_nobody_is_hit_who_was_not_trained_on() -> None:
    people = count({0: 200, 1: 200})
    assert people.is_alike and people.luck.trials == 400
    assert {k: len(rows) for k, rows in people.tested.items()} == {0: EACH, 1: EACH}
    bound = bound_people(people, alpha=0.01)
    assert bound.at_least == 0 and bound.at_most is not None and bound.at_most <= 6


def test_a_client_without_people_of_its_own_beside_it_is_not_tested_and_counts_whole() -> None:
    people = count({1: 200})
    assert people.is_alike and people.luck.trials == 200  # of the third hospital nobody
    assert [*people.tested] == [*people.hit, 1][-1:] == [1] and dict(people.held) == {0: EACH, 1: EACH}
    bound = bound_people(people, alpha=0.01)
    assert bound.at_most is not None and EACH <= bound.at_most < EACH + 6
    assert {g.name for g in people.groups} == set()  # all who were tested are one client's and of one class


@pytest.mark.parametrize("harm", [Harm.MEMBERSHIP, Harm.RECONSTRUCTION, Harm.LINKAGE, Harm.RECORD])
def test_a_copy_is_a_copy_whoever_was_held_out(harm: Harm) -> None:
    truth: Any = TwoHospitals({})
    found = CountedPeople("found", harm)
    found.test(0, truth.client_rows(0), truth.client_rows(0)[:30])
    for mark in fingerprints(truth.reference.x):
        found.luck(0, 1, person=mark, clients=[0])
    (people,) = found.people(truth)
    bound = bound_people(people, alpha=0.01)
    assert people.is_alike is (harm is Harm.RECORD)
    assert bound.at_least == (28 if harm is Harm.RECORD else 0)


def test_luck_of_claims_about_others_needs_nobody_held_out() -> None:
    truth: Any = TwoHospitals({})
    found = CountedPeople("its class is known", Harm.ATTRIBUTE)
    found.test(0, truth.client_rows(0), truth.client_rows(0)[:30])
    found.luck(0, 200)
    (people,) = found.people(truth)
    assert people.is_alike and bound_people(people, alpha=0.01).at_least == 27


class Owned(World):
    """A world whose clients look like nobody else; each held out every tenth of the reference itself."""

    def unseen(self, clients: object) -> Unseen:
        assert isinstance(clients, Collection)
        rows = np.flatnonzero(np.isin(np.arange(len(self.reference)) % 10, [*clients]))
        return Unseen(self.reference.only(rows), "their own") if len(rows) else Unseen(self.reference, OF_OTHERS)


def test_galleries_have_the_clients_own_held_out_people_and_luck_is_theirs() -> None:
    world = Owned(sizes=(1,), clients=4, groups=40)
    claim = Ridge().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    (people,) = Ridge().count_people(claim, world, np.random.default_rng(1))
    classes = {k: np.unique(world.client_examples(k).y) for k in range(4)}
    own = {k: int(np.isin(world.unseen([k]).images.y, classes[k]).sum()) for k in range(4)}
    assert people.is_alike and set(people.tested) == set(range(4))
    assert people.luck.trials == sum(own.values()) > 0


def test_a_gallery_begins_with_whom_the_clients_held_out_themselves() -> None:
    world = Owned(sizes=(), clients=2)
    sent = world.artifacts[1].id
    found, bare = (Pools(world).without(0, [], name) for name in (sent, ""))
    first = set(fingerprints(found.shuffle(np.random.default_rng(0))[: found.own]))
    own = world.unseen([0]).images.of_class(0)
    assert first == set(fingerprints(own)) and found.own == len(own) > 0 == bare.own
    assert np.array_equal(
        bare.shuffle(np.random.default_rng(3)), bare.images[np.random.default_rng(3).permutation(len(bare))]
    )


def test_five_held_out_people_test_nobody() -> None:
    truth: Any = TwoHospitals({0: 5, 1: 5})
    assert count_flagged([score(truth, k, 0.0) for k in (0, 1)], [], [0, 1], truth) == []


def test_a_threshold_that_five_set_is_open_whoever_is_above_it() -> None:
    """One of five is the highest, and above it luck puts a sixth of all: neither limit says more."""
    for hits in (0, 10, 20, 40):
        people = PeopleCount(
            harm=Harm.MEMBERSHIP,
            hit_means="flagged",
            tested={0: tuple(range(120))},
            hit={0: tuple(range(hits))},
            held={0: 120},
            luck=Share(hits=1, trials=5),
        )
        bound = bound_people(people, alpha=0.01)
        assert bound.at_least == 0 and (hits < 7 or bound.at_most is None or bound.at_most > 6)
