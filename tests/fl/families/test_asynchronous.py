"""The clock answers in order of time, fills freed places, and goes on where it was left."""

from typing import Any

from fedaudit.fl.families.asynchronous import Arrival, Clock

PACE = {0: 1.0, 1: 3.5, 2: 1.0, 3: 0.25}


def clock(**settings: Any) -> Clock:
    usual: dict[str, Any] = {
        "now": 0.0,
        "flight": {},
        "version": 7,
        "places": 2,
        "waiting": [0, 1, 2, 3],
        "duration": PACE.__getitem__,
        "loses": lambda k, started: False,
    }
    usual |= settings
    return Clock(usual.pop("now"), usual.pop("flight"), **usual)


def test_places_are_filled_in_order_as_they_become_free() -> None:
    c = clock()
    assert c.take_starts() == [0, 1]
    assert [(a.client, a.time) for a in c.next(3)] == [(0, 1.0), (2, 2.0), (3, 2.25)]
    assert c.take_starts() == [2, 3] and c.take_starts() == []
    assert c.flight == {"1": {"version": 7, "due": 3.5}}


def test_lost_answers_take_time_and_do_not_count() -> None:
    arrivals = clock(loses=lambda k, started: k == 0).next(1)
    assert arrivals == [Arrival(0, 7, 1.0, True), Arrival(2, 7, 2.0, False)]


def test_it_ends_when_nobody_is_left() -> None:
    c = clock()
    assert len(c.next(9)) == 4 and c.next(1) == [] and c.now == 3.5


def test_tasks_of_earlier_rounds_keep_their_version_and_ties_go_to_the_lower_number() -> None:
    flight = {"5": {"version": 2, "due": 4.0}, "4": {"version": 3, "due": 4.0}}
    c = clock(now=3.75, flight=flight, places=3, waiting=[3])
    assert c.soonest() == [(3, 7), (4, 3), (5, 2)]
    assert [a.version for a in c.next(3)] == [7, 3, 2]
    assert len(flight) == 2  # the state it was made from stays as it is
