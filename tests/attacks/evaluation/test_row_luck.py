"""A row of many columns that a claim equals is no luck, however few are held out; one of three bits is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import OF_OTHERS, Unseen
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.summaries.centre_rows import CentreRows
from fedaudit.audit.verdict.people import bound_people
from tests.attacks.summaries.clinics import Clinics

ALPHA = 0.001  # of one attack of a panel of forty
RNG = np.random.default_rng(0)


def count(world: Clinics, rows: NDArray[Any]) -> PeopleCount:
    """Whom it hits if these rows are claimed of the first clinic."""
    columns = np.empty(1, object)
    claim = {"row": rows, "client": np.zeros(len(rows), np.int64), "read": np.array([0]), "columns": columns}
    [people] = CentreRows().count_people(claim, world, RNG)
    return people


def make_world(x: NDArray[Any]) -> Clinics:
    """Clinics of 170 people each, of these rows."""
    world = Clinics("wine", (1, 1))
    world.x, world.y, world.columns = np.asarray(x, np.float64), np.zeros(len(x), np.int64), None
    world.parts = [np.arange(170), np.arange(170, 340)]
    rest = np.arange(340, len(x))
    world.auxiliary, world.reference = world._take(rest[::2]), world._take(rest[1::2])
    return world


@pytest.mark.parametrize("name", ["diabetes", "wine", "patients"])
def test_one_row_of_ten_columns_is_beyond_luck_though_held_out_people_are_too_few_to_say_so(name: str) -> None:
    world = Clinics(name, (40, 40))
    people = count(world, world.rows(0)[:1])
    assert bound_people(people, alpha=ALPHA).at_least == 1
    assert bound_people(replace(people, told=0), alpha=ALPHA).at_least == 0
    nobody = count(world, world.rows(1))
    assert not any(nobody.hit.values()) and bound_people(nobody, alpha=ALPHA).at_least == 0


def test_rows_of_three_bits_are_luck_and_so_are_twelve_columns_that_are_one_bit() -> None:
    rng = np.random.default_rng(1)
    three = rng.integers(0, 2, (640, 3))
    people = count(make_world(three), np.unique(three, axis=0))
    assert len(people.hit[0]) == 8 and bound_people(people, alpha=ALPHA).at_least == 0
    rare = (rng.random((640, 1)) < 0.05) * (1.0 + np.arange(12))  # by themselves twelve columns of 4 bits
    people = count(make_world(rare), 1.0 + np.arange(12)[None])
    assert len(people.hit[0]) == 1
    assert bound_people(people, alpha=ALPHA).at_least == 0


def test_rows_that_many_share_do_not_hide_one_that_nobody_does() -> None:
    world = Clinics("diabetes", (40, 40))
    world.x = world.x.copy()
    world.x[world.parts[0][20:]] = world.x[world.parts[1][20:]] = world.auxiliary.x[:100] = 0
    people = count(world, np.stack([world.rows(0)[0], np.zeros(10)]))
    assert len(people.hit[0]) == 2 and bound_people(people, alpha=ALPHA).at_least == 1


class Strange(Clinics):
    """Clinics whose held-out people are other clinics'."""

    def unseen(self, clients: Any) -> Unseen:
        return Unseen(self.reference, OF_OTHERS)


def test_where_held_out_people_are_others_a_value_that_a_clinic_shares_says_nothing() -> None:
    """All of a clinic have the same ten values, which nobody elsewhere has: knowing the clinic is enough."""
    strange = Strange("patients", (60, 60))
    people = count(strange, strange.rows(0)[:3])
    bound = bound_people(people, alpha=ALPHA)
    assert (bound.at_least, bound.at_most) == (2, None) and bound.reason  # of 3; one may be chance
    strange.x = strange.x.copy()
    strange.x[strange.parts[0], :10] = 5000 + np.arange(10)
    people = count(strange, strange.rows(0)[:3])
    assert len(people.hit[0]) >= 3 and bound_people(people, alpha=ALPHA).at_least == 0
