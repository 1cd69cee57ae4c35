"""The clock answers in order of time, fills freed places, and goes on where it was left."""

from collections.abc import Iterator
from typing import Any, ClassVar, cast

import numpy as np

from fedaudit.fl.families.asynchronous import Arrival, Clock
from fedaudit.fl.federation import Holdings
from fedaudit.fl.runtime.streams import Streams

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


class Due(float):
    """A time that counts how often it is compared."""

    compared: ClassVar[int] = 0

    def __lt__(self, other: float) -> bool:
        Due.compared += 1
        return float(self) < float(other)


def test_many_in_flight_are_not_put_in_order_again_for_each_arrival() -> None:
    def count(clients: int) -> int:
        flight = {str(k): {"version": 0, "due": Due(k * 7919 % clients)} for k in range(clients)}
        c, Due.compared = clock(flight=flight, places=clients, waiting=[]), 0
        assert [a.time for a in c.next(clients)] == list(range(clients))
        return Due.compared

    assert 0 < count(400) <= 3 * count(200)


def test_the_mean_of_all_clients_is_not_taken_anew_for_each() -> None:
    class Parts(list[Any]):
        read = 0

        def __iter__(self) -> Iterator[Any]:
            self.read += 1
            return super().__iter__()

    parts = Parts(np.arange(n) for n in (1, 2, 6))
    holdings = Holdings(cast(Any, None), parts, Streams(0))
    assert [holdings.compare_size(k) for k in (0, 1, 2)] == [1 / 3, 2 / 3, 2.0]
    assert parts.read == 1
