"""Groups of people: who stands in which, and held-out people of the same group, tried in its clients' place."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedaudit.attacks.attack import Examples, Unseen
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import GroupCount, PeopleCount, Share
from fedaudit.fl.threats.threat import Harm

CLIENTS, EACH, RARE = 7, 100, 5  # people of a client, and of them those of class 1


def make_images(label: NDArray[np.int64], start: int, far: NDArray[np.float64] | float = 0.0) -> Examples:
    """Images of two numbers: one names the person, the other says how far it is from those of its class."""
    x = np.stack([1e-6 * np.arange(start, start + len(label)), np.broadcast_to(far, len(label))], axis=1)
    return Examples(x=x.astype(np.float32)[:, None, None], y=label)


class Hospital:
    """700 people in 7 clients, of whom 5 each are of class 1; held-out people: 100 of class 0, 50 of class 1."""

    auxiliary = make_images(np.array([0, 1]), 5000)
    reference = make_images(np.repeat([0, 1], [100, 50]), 4000, np.linspace(0, 1, 150))

    def client_examples(self, client: int) -> Examples:
        return make_images(np.repeat([0, 1], [EACH - RARE, RARE]), EACH * client, np.linspace(0, 1, EACH))

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return EACH * client + np.arange(EACH)

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")


TRUTH: Any = Hospital()
HELD_OUT = fingerprints(TRUTH.reference.x)


def count(luck: NDArray[np.float64] | None = None, truth: Any = TRUTH) -> PeopleCount:
    """28 of the 35 of class 1 are hit, and a person of class 0 at each client; luck [150]: of held-out people."""
    found = CountedPeople("found", Harm.MEMBERSHIP)
    for k in range(CLIENTS):
        rows = truth.client_rows(k)
        found.test(k, rows, [rows[0], *rows[EACH - RARE :][1:]])
        for mark, hit in zip(HELD_OUT, np.zeros(150) if luck is None else luck, strict=True):
            found.luck(float(hit), 1, person=mark, clients=[k])
    (people,) = found.people(truth)
    return people


def groups(people: PeopleCount) -> dict[str, GroupCount]:
    return {group.name: group for group in people.groups}


def test_28_of_the_35_people_of_one_class_are_seen_in_their_group() -> None:
    found = groups(count())
    assert found["class 1"] == GroupCount(name="class 1", tested=35, hits=28, luck=Share(hits=0, trials=50))
    assert (found["class 0"].tested, found["class 0"].hits) == (665, 7)
    assert found["client 3"] == GroupCount(name="client 3", tested=100, hits=5, luck=Share(hits=0, trials=150))
    assert found["class 0 of client 3"].luck == Share(hits=0, trials=100)
    assert "class 1 of client 3" not in found  # five people


def test_groups_of_labels_that_are_no_classes_are_not_called_so() -> None:
    """Of a regression it said "21 people of class 8"."""
    truth = Hospital()
    truth.auxiliary = replace(truth.auxiliary, labels=np.array([0.5, 1.5]))
    names = set(groups(count(truth=truth)))
    assert {"group 0", "group 1", "client 3", "group 0 of client 3"} <= names
    assert not any("class" in name for name in names)


def test_a_class_that_scores_high_for_members_and_held_out_people_alike_has_as_much_luck() -> None:
    luck = np.concatenate([np.zeros(100), np.arange(50) < 40])
    people = count(luck)
    found = groups(people)
    assert found["class 1"].luck.hits / found["class 1"].luck.trials == pytest.approx(0.8)
    assert 49 <= found["class 1"].luck.trials <= 50  # one person in the place of seven clients is not seven
    assert found["class 0"].luck == Share(hits=0, trials=100)
    assert people.luck.hits / people.luck.trials == pytest.approx(40 / 150)


def test_the_rarest_tenth_is_beside_held_out_people_who_are_as_rare() -> None:
    """Of each client's people the 10 furthest; of held-out people those as far: from .909 on, a class apart."""
    far = np.linspace(0, 1, 150) >= 0.908
    rarest = groups(count(np.where(far, 1.0, 0.0)))["rarest tenth"]
    assert (rarest.tested, rarest.hits) == (70, 28)
    assert rarest.luck.hits == rarest.luck.trials == far.sum() == 14


def test_the_place_of_held_out_people_is_that_of_their_clients() -> None:
    """Whoever is scored beside one client's people says nothing of the luck of another's."""
    found = CountedPeople("found", Harm.MEMBERSHIP)
    for k in (0, 1):
        found.test(k, TRUTH.client_rows(k), [])
        for mark in HELD_OUT:
            found.luck(float(k), 1, person=mark, clients=[k])
    by_name = groups(found.people(TRUTH)[0])
    assert by_name["client 0"].luck == Share(hits=0, trials=150)
    assert by_name["client 1"].luck == Share(hits=150, trials=150)
    assert by_name["class 0 of client 1"].luck == Share(hits=100, trials=100)


def test_luck_of_nobody_in_particular_is_that_of_no_group() -> None:
    found = CountedPeople("found", Harm.RECONSTRUCTION)
    found.test(0, TRUTH.client_rows(0), [0, 1])
    found.luck(3, 100)
    found.luck(1, 1, person=b"of whom nothing is known", clients=[0])
    (people,) = found.people(TRUTH)
    assert people.luck == Share(hits=4, trials=101)
    assert groups(people)["class 0"].luck == Share() == groups(people)["rarest tenth"].luck


def test_everybody_is_no_group_and_the_same_people_are_one() -> None:
    """Of one client the client is everybody, and its classes are those of all."""
    found = CountedPeople("found", Harm.RECORD)
    found.test(4, TRUTH.client_rows(4), [])
    (people,) = found.people(TRUTH)
    assert [g.name for g in people.groups] == ["class 0", "rarest tenth"]


def test_texts_have_no_rarest_tenth_and_facts_no_groups() -> None:
    texts: Any = Hospital()
    texts.client_examples = lambda k: replace(TRUTH.client_examples(k), x=np.ones((EACH, 9), np.int64))
    texts.reference = replace(TRUTH.reference, x=np.arange(150 * 9).reshape(150, 9))
    assert "rarest tenth" not in groups(count(truth=texts)) and "class 1" in groups(count(truth=texts))
    for harm in (Harm.ATTRIBUTE, Harm.CLIENT_FACT):
        found = CountedPeople("found", harm)
        found.test(0, TRUTH.client_rows(0), [])
        assert found.people(TRUTH)[0].groups == ()


def test_people_of_a_class_without_auxiliary_people_are_the_rarest() -> None:
    known: Any = Hospital()
    known.auxiliary = Hospital.auxiliary.only(np.array([0]))
    rarest = groups(count(truth=known))["rarest tenth"]
    assert (rarest.tested, rarest.hits) == (70, 28)  # 35 of them, and 35 more


def test_what_is_counted_is_what_a_file_of_evidence_gives_back() -> None:
    form, counted = TypeAdapter(list[PeopleCount]), [count(np.arange(150) % 2)]
    assert form.validate_json(form.dump_json(counted)) == counted and counted[0].groups
