"""Sums and centres that differ by one person give his row away; those that differ by several do not."""

from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.evaluation.row_recovery import match_rows
from fedaudit.attacks.summaries._row_statistics import RowStatistics
from fedaudit.attacks.summaries.centre_rows import CentreRows
from fedaudit.attacks.summaries.sums_rows import SumsRows
from tests.attacks.summaries.clinics import Clinics, centres_that_move, send, sums_that_differ

RNG = np.random.default_rng(0)
MADE: dict[str, tuple[type[RowStatistics], Any]] = {
    "sums": (SumsRows, sums_that_differ),
    "centres": (CentreRows, centres_that_move),
}


@pytest.mark.parametrize("name", MADE)
def test_of_each_clinic_the_row_that_left_is_found_and_nobody_held_out_is(name: str) -> None:
    make, send_all = MADE[name]
    world, sent = send_all()
    attack = make()
    claim = attack.run(sent, world.knowledge, RNG)
    assert {*claim["client"].tolist()} == {0, 1, 2} and len(claim["row"]) == 3
    for client, row in zip(claim["client"], claim["row"], strict=True):
        assert min(np.abs(s * row - world.rows(client)[0]).max() for s in (1, -1)) < 1e-9
    found = {e.control: e for e in attack.measure(claim, world, RNG)}
    assert found["none"].value == found["positive"].value == 1 and found["negative"].value == 0
    assert {b.name: b.value for b in found["none"].baselines} == {"public rows": 0, "the public's middle row": 0}
    [people] = attack.count_people(claim, world, RNG)
    assert {k: [world.x[r].tolist() for r in rows] for k, rows in people.hit.items()} == {
        k: [world.rows(k)[0].tolist()] for k in range(3)
    }
    assert people.luck.hits == 0 and people.luck.trials > 100


@pytest.mark.parametrize("name", MADE)
def test_of_clinics_that_two_people_leave_nothing_is_claimed(name: str) -> None:
    make, send_all = MADE[name]
    world, sent = send_all(by=2)
    assert make().not_applicable(sent, world.knowledge).startswith("no client's messages hold")
    assert not len(make().run(sent, world.knowledge, RNG)["row"])


@pytest.mark.parametrize("n", [20, 400])
def test_the_row_is_right_to_ten_digits_from_sums_of_400(n: int) -> None:
    x = np.random.default_rng(1).normal(size=(n, 10)) * np.logspace(-2, 3, 10) + np.arange(10)
    [row] = SumsRows().derive([{"a": x.T @ x}, {"a": x[1:].T @ x[1:]}], x)
    error = min(np.abs((s * row - x[0]) / x.std(axis=0)).max() for s in (1, -1))
    assert error < (1e-8 if n == 20 else 1e-6)


def test_a_sum_over_one_person_and_a_sum_with_a_constant_are_read_too() -> None:
    world = Clinics()
    x = np.hstack([np.ones((20, 1)), world.rows(0)])
    one = SumsRows().derive([{"xx": world.rows(0)[3:4].T @ world.rows(0)[3:4]}], world.rows(0))
    assert match_rows(one, world.rows(0), world.auxiliary.x).tolist() == [3]
    more = SumsRows().derive([{"xx": x.T @ x}, {"xx": x[1:].T @ x[1:]}], world.rows(0))
    assert 0 in match_rows(more, world.rows(0), world.auxiliary.x)


def test_a_centre_of_one_is_a_row_and_of_two_is_none() -> None:
    world = Clinics("wine", (12, 12))
    x = world.rows(0)
    found = CentreRows().derive([{"c": np.stack([x[4], x[:2].mean(axis=0)]), "n": np.array([1, 2])}], x)
    assert match_rows(found, x, world.auxiliary.x).tolist() == [4]


def test_scaled_rows_are_the_same_rows() -> None:
    world = Clinics("wine", (30, 30))
    x, public = world.rows(0), world.auxiliary.x.astype(np.float64)
    scaled = (x - public.mean(axis=0)) / public.std(axis=0)
    assert match_rows(scaled[:5], x, public).tolist() == [0, 1, 2, 3, 4]
    assert match_rows(scaled[:5], world.rows(1), public).tolist() == [-1] * 5


def test_images_and_messages_without_sums_are_refused_in_words() -> None:
    world, _ = sums_that_differ()
    assert SumsRows.card.explain_unfit(["numbers", "images"]) == "it needs rows of a table"
    said = SumsRows().not_applicable([send(0, 0, {"a": np.zeros((3, 3))})], world.knowledge)
    assert said == "no client's messages hold sums of products that differ by one person, or are of one"
