"""People who are alone in a bin, or at their time, are read off tables of counts; in large cells nobody is."""

import numpy as np
import pytest

from fedaudit.attacks.summaries._lone_values import LoneValues
from fedaudit.attacks.summaries.curve_rows import CurveRows
from fedaudit.attacks.summaries.lone_cells import LoneCells
from tests.attacks.summaries.clinics import Clinics, send, tables

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("make", [LoneCells, CurveRows])
def test_every_cell_of_one_is_right_and_others_are_right_by_chance_alone(make: type[LoneValues]) -> None:
    world, sent = tables()
    attack = make()
    assert not attack.not_applicable(sent, world.knowledge)
    claim = attack.run(sent, world.knowledge, RNG)
    found = {e.control: e for e in attack.measure(claim, world, RNG)}
    assert found["none"].value == found["positive"].value == 1
    assert found["negative"].value < 0.6 and found["none"].baselines[0].value < 0.6
    [people] = attack.count_people(claim, world, RNG)
    for client, rows in people.hit.items():
        images, alone = world.client_examples(client), set[int]()
        if make is CurveRows:
            time, event = images.wanted.T
            alone = {i for i in range(40) if event[i] and ((time == time[i]) & (event > 0)).sum() == 1}
            assert {*rows} == {int(world.parts[client][i]) for i in alone}
        assert 0.3 < len(rows) / 40 <= 1


def test_in_five_bins_of_a_large_site_hardly_anybody_is_alone() -> None:
    world, sent = tables(bins=5, sizes=(180,))
    claim = LoneCells().run(sent, world.knowledge, RNG)
    people = LoneCells().count_people(claim, world, RNG)
    assert sum(len(rows) for some in people for rows in some.hit.values()) <= 5


def test_a_known_table_is_read_cell_by_cell() -> None:
    cells = LoneCells().list_cells({"n": np.array([2, 1]), "at": np.array([0.0, 5.0, 9.0])}, 1)
    assert [(c.value, c.low, round(c.high, 6), c.people) for c in cells] == [(0, 0, 5, 2), (0, 5, 9, 1)]
    curve = {"time": np.array([3, 4, 8]), "at_risk": np.array([9, 7, 2]), "events": np.array([1, 2, 1])}
    assert [(c.low, c.people) for c in CurveRows().list_cells(curve, 1)] == [(3, 1), (4, 2), (8, 1)]


def test_messages_without_tables_are_refused_in_words() -> None:
    world, knowledge = Clinics(), tables()[0].knowledge
    sent = [send(0, 0, {"a": np.zeros((3, 3))})]
    assert "no client's messages hold a histogram" in LoneCells().not_applicable(sent, knowledge)
    assert "no times of events" in CurveRows().not_applicable(sent, world.knowledge)
    assert "no client's messages hold times" in CurveRows().not_applicable(sent, knowledge)
