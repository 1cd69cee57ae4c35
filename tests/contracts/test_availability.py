"""Every model of availability: ascending clients of those offered, repeatable, no inherited claim."""

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.runtime.streams import Streams
from tests.contracts.words import odd

NAMES = catalog.names("availability")
CANDIDATES = (1, 2, 5, 7, 8, 11, 13, 17, 18, 19)


def made(name: str) -> Availability:
    found: Availability = catalog.load("availability", name)()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_clients_are_ascending_and_among_the_candidates(name: str) -> None:
    for round in range(6):
        found = made(name).draw(round, CANDIDATES, Streams(7))
        assert list(found.selected) == sorted(set(found.selected)) and set(found.selected) <= set(CANDIDATES)
        assert list(found.answering) == sorted(set(found.answering)) and set(found.answering) <= set(CANDIDATES)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_round_is_drawn_alike_in_any_order_by_any_object(name: str) -> None:
    forwards, backwards = made(name), made(name)
    there = [forwards.draw(t, CANDIDATES, Streams(7)) for t in range(6)]
    assert there == [backwards.draw(t, CANDIDATES, Streams(7)) for t in reversed(range(6))][::-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_of_privacy_stands_on_the_class_that_draws(name: str) -> None:
    cls = catalog.load("availability", name)
    claims = next(c for c in cls.__mro__ if "sampling" in vars(c))
    assert claims is cls, f"{name} inherits what {claims.__name__} claims"


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_does_in_plain_words(name: str) -> None:
    text = made(name).describe()
    assert len(text.split()) >= 3 and not odd(text)
