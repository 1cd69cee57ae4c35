"""Rows of a table are read from single units of the first layer, and nothing is claimed that is no row."""

import numpy as np
import pytest

from fedaudit.attacks.evaluation.row_recovery import match_rows
from fedaudit.attacks.updates.analytic_rows import AnalyticRows, divide
from tests.attacks.summaries.clinics import INVENTED, one_step

RNG = np.random.default_rng(0)


def test_the_hand_example_is_right() -> None:
    """delta .5 and x = (2, -1): dW = (1, -.5), db = .5; two units agree."""
    weight, bias = np.array([[1, -0.5], [2, -1.0], [0, 0]]), np.array([0.5, 1.0, 0])
    found = divide(weight, bias, np.ones((3, 2)), np.zeros(3), None)
    assert found.tolist() == [[2, -1]]
    off = np.array([[1, -0.5], [2, -1.0], [1.0015, -0.5], [2.003, -1]]), np.array([0.5, 1, 0.5, 1])
    assert divide(*off, np.ones((4, 2)), np.zeros(4), None).tolist() == [[2, -1]]  # rounding: one row, not two
    assert not len(divide(weight[:1], bias[:1], np.ones((1, 2)), np.zeros(1), None))  # nobody agrees
    assert not len(divide(1e-6 * weight, 1e-6 * bias, np.ones((3, 2)), np.zeros(3), None))  # hidden by rounding


def test_rows_of_small_batches_are_exact_and_every_claim_is_right() -> None:
    world, sent = one_step()
    attack = AnalyticRows()
    assert not attack.not_applicable(sent, world.knowledge)
    claim = attack.run(sent, world.knowledge, RNG)
    assert claim["client"].tolist() == [0, 1, 1, 2, 2, 2, 2]
    found = {e.control: e for e in attack.measure(claim, world, RNG)}
    assert found["none"].value == found["positive"].value == 1 and found["negative"].value == 0
    assert {b.value for b in found["none"].baselines} == {0}
    [people] = attack.count_people(claim, world, RNG)
    assert {k: len(rows) for k, rows in people.hit.items()} == {0: 1, 1: 2, 2: 4} and not people.luck.hits


def test_what_has_not_the_form_of_a_row_is_not_claimed() -> None:
    columns = INVENTED.columns
    assert columns is not None
    row = INVENTED.train.x[:1]
    given = np.asarray(columns.model_input(row)[0], np.float64)
    between, nobody, twice = given.copy(), given.copy(), given.copy()
    std = np.asarray(columns.std)
    between[0] += 0.4 / std[0]  # years
    nobody[columns.spans[5]] = 0  # no ward
    twice[columns.spans[5]] = 1
    for inputs, claimed in ((given, row.tolist()), (between, []), (nobody, []), (twice, [])):
        found = divide(inputs[None], np.ones(1), np.ones((1, columns.width)), np.zeros(1), columns)
        assert len(found) == len(claimed) and np.allclose(found, np.reshape(claimed, found.shape))


def test_of_large_batches_nothing_is_claimed() -> None:
    world, sent = one_step(sizes=(64, 64))
    claim = AnalyticRows().run(sent, world.knowledge, RNG)
    assert not len(claim["row"]) and not AnalyticRows().exhibits(claim, world)
    [planted] = AnalyticRows().measure(claim, world, RNG)
    assert planted.control == "positive" and planted.value == 1
    [people] = AnalyticRows().count_people(claim, world, RNG)
    assert {k: len(rows) for k, rows in people.tested.items()} == {0: 64, 1: 64} and not any(people.hit.values())


@pytest.mark.parametrize("name", ["diabetes", "wine"])
def test_a_table_without_grids_is_read_where_two_units_agree_and_no_mixture_is(name: str) -> None:
    """Units of a network with one output agree on mixtures of two rows, so of three nothing is claimed."""
    world, sent = one_step(name, (1, 3, 100))
    claim = AnalyticRows().run(sent, world.knowledge, RNG)
    assert claim["client"].tolist() == [0]
    assert match_rows(claim["row"], world.rows(0), world.auxiliary.x.astype(np.float64)).tolist() == [0]


def test_a_model_without_a_dense_first_layer_is_refused_in_words() -> None:
    world, sent = one_step()
    knowledge = one_step("wine")[0].knowledge
    assert AnalyticRows().not_applicable(sent, knowledge).startswith("no upload holds a first dense layer")
    assert world.columns is not None
