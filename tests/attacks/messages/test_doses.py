"""Doses: the gate asks whether the attack would have seen somebody, and says from how many times on it does."""

from collections.abc import Iterator

import numpy as np
import pytest

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.flagging import ScoredPeople
from fedaudit.attacks.messages._doses import Dosed, choose_dose, count_seen, find_doses, mix
from fedaudit.attacks.people import Share


def read(client: int, scores: list[float], others: int = 200) -> Dosed:
    """A played message whose held-out people score 0 to 1."""
    return Dosed(
        client,
        [
            ScoredPeople(
                client=client,
                rows=range(len(scores)),
                scores=np.array(scores),
                held_out=range(others),
                held_out_scores=np.linspace(0, 1, others),
            )
        ],
    )


@pytest.mark.parametrize(("examples", "times"), [(1, 8), (45, 8), (80, 8), (81, 9), (180, 18), (6000, 600)])
def test_at_the_gate_a_person_stands_eight_times_or_as_often_as_a_tenth(examples: int, times: int) -> None:
    assert choose_dose(examples) == times


@pytest.mark.parametrize(("seen_from", "half"), [(1, 1), (2, 2), (5, 9), (18, 18), (19, 0)])
def test_the_dose_from_which_half_are_seen_is_found_by_halving(seen_from: int, half: int) -> None:
    def play(client: int, times: int, people: int) -> Iterator[Dosed]:
        for _ in range(people):
            yield read(client, [5.0 if times >= seen_from else 0.5])

    found = find_doses({0: 180, 1: 180}, play)
    assert (found.times, found.half) == (18, half)
    assert {d.client for d in found.gate} == {0, 1} and len(found.gate) == 60


def test_every_client_counts_with_as_many_people_and_of_many_clients_ten_are_played() -> None:
    asked = dict[int, int]()

    def play(client: int, times: int, people: int) -> Iterator[Dosed]:
        asked[client] = people
        yield read(client, [0.0])

    find_doses(dict.fromkeys(range(37), 20), play)
    assert len(asked) == 10 and {0, 36} <= asked.keys() and set(asked.values()) == {6}


def test_seen_is_who_lies_above_what_held_out_people_reach() -> None:
    doses = [read(3, [0.5, 7.0]), read(3, [0.98]), read(4, [2.0])]
    assert count_seen(doses, 0.01) == {3: Share(hits=1, trials=3), 4: Share(hits=1, trials=1)}
    assert count_seen(doses, 0.10)[3] == Share(hits=2, trials=3)


def test_nobody_is_played_where_nothing_tells() -> None:
    assert find_doses({}, lambda *_: iter(())) == ([], 0, 0)


def test_people_stand_so_often_and_others_once() -> None:
    people = Examples(x=np.full((2, 1), 9.0), y=np.array([1, 2]))
    others = Examples(x=np.arange(30.0).reshape(30, 1), y=np.zeros(30, np.int64))
    made = mix(people, 4, others, 20, np.random.default_rng(0))
    assert np.bincount(made.y).tolist() == [12, 4, 4] and (made.x[made.y > 0] == 9).all()
    assert len(np.unique(made.x[made.y == 0])) == 12
    assert len(mix(people, 4, others, 5, np.random.default_rng(0)).y) == 8  # they alone
