"""TabLeak finds rows of small batches, is as good as blind on many rows and steps, and claims nothing of more."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.gradients import Imitation, iterate_updates
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.tableak import Search, Tableak, measure_entropy, soften
from fedaudit.fl.data.columns import Column, Columns
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.updates.trained_rows import TrainedRows

COLUMNS = Columns(
    columns=(
        Column(name="age", step=1, low=0, high=100, missing=True),
        Column(name="ward", kind="category", levels=("a", "b"), missing=True),
    ),
    mean=(50.0, 0.0),
    std=(10.0, 1.0),
)


def judge(world: TrainedRows, **settings: int) -> dict[tuple[str, str], Evidence]:
    attack, rng = configure(Tableak, settings, ""), np.random.default_rng(0)
    claim = attack.run(world.artifacts, world.knowledge, rng)
    return {(e.measure, e.control): e for e in attack.measure(claim, world, rng) if not e.condition}


def test_single_rows_are_found_value_for_value_and_nobody_elses() -> None:
    world, attack, rng = TrainedRows((1, 1, 2)), Tableak(), np.random.default_rng(0)
    assert not attack.not_applicable(world.artifacts, world.knowledge)
    claim = attack.run(world.artifacts, world.knowledge, rng)
    assert claim["read"].tolist() == [0, 1, 2] and claim["client"].tolist() == [0, 1, 2, 2]
    np.testing.assert_allclose(claim["row"][:2], np.concatenate([world.rows(0), world.rows(1)]))
    found = {(e.measure, e.control): e for e in attack.measure(claim, world, rng) if not e.condition}
    assert found["exact_row", "none"].value == found["exact_row", "positive"].value == 1
    assert found["exact_row", "negative"].value == 0
    assert {b.name for b in found["values_near", "none"].baselines} == {"public rows", "the public's middle row"}
    [people] = attack.count_people(claim, world, rng)
    assert {k: len(rows) for k, rows in people.hit.items()} == {0: 1, 1: 1, 2: 2} and people.told == 4


def test_many_steps_on_many_rows_leave_what_blind_rows_have_and_more_rows_leave_no_claim() -> None:
    found = judge(TrainedRows((32,), steps=60))
    near, blind = found["values_near", "none"], max(b.value for b in found["values_near", "none"].baselines)
    assert found["exact_row", "none"].value == 0 and near.value < blind + 0.15
    assert found["exact_row", "positive"].value == 1  # the search itself works
    world = TrainedRows((33, 40))
    assert Tableak().not_applicable(world.artifacts, world.knowledge).startswith("no upload is of at most 32")
    claim = Tableak().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    assert not len(claim["row"]) and not len(claim["read"])
    assert not Tableak().measure(claim, world, np.random.default_rng(0))


def test_rows_whose_columns_nobody_described_are_found_within_a_thousandth() -> None:
    world = TrainedRows((1,), name="wine")
    claim = Tableak().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    spread = world.auxiliary.x.std(axis=0)
    assert (np.abs(claim["row"] - world.rows(0)) < 1e-3 * spread).all()


def test_what_starts_agree_on_is_more_often_right() -> None:
    world, attack, rng = TrainedRows((8,)), Tableak(), np.random.default_rng(0)
    claim = attack.run(world.artifacts, world.knowledge, rng)
    every, sure = [e.value for e in attack.measure(claim, world, rng) if e.measure == "values_near"][:2]
    assert 0.6 < every < sure


def test_one_start_of_no_steps_claims_what_chance_does() -> None:
    """The identity: without descent nothing of the gradient but its labels has a part in the claim."""
    one, other = TrainedRows((4,), seed=0), TrainedRows((4,), steps=2, seed=0)
    attack = configure(Tableak, {"iterations": 1, "restarts": 1, "lr": 0}, "")
    claims = [attack.run(w.artifacts, w.knowledge, np.random.default_rng(0))["row"] for w in (one, other)]
    assert claims[0].tolist() == claims[1].tolist()
    assert not (claims[0][:, None] == one.rows(0)).all(axis=2).any()


def test_gradients_side_by_side_are_those_one_after_the_other() -> None:
    world = TrainedRows((2,))
    [update] = iterate_updates(world.artifacts, world.knowledge)
    copy = Imitation(update, world.knowledge, world.run_model(world.start).net)
    x, y = torch.randn((3, 2, 70), generator=torch.Generator().manual_seed(0)), torch.tensor([0, 2])
    for i, one in enumerate(x):
        for together, alone in zip(copy.gradients(x, y), copy.gradient(one, y), strict=True):
            torch.testing.assert_close(together[i], alone.detach(), rtol=1e-4, atol=1e-6)


def test_what_the_search_sends_is_what_a_client_sends() -> None:
    world = TrainedRows((2,))
    [update] = iterate_updates(world.artifacts, world.knowledge)
    sent = Search(Tableak.Config(), world.knowledge, update).send(world.rows(0), world.y[world.parts[0]])
    for name, gradient in update.gradient.items():
        np.testing.assert_allclose(sent.gradient[name], gradient, atol=1e-5)


def test_a_soft_row_is_a_row_by_hand() -> None:
    x = torch.tensor([[2.0, 0.0, 1.0, 1.0, 1.0], [2.0, -30.0, 3.0, 0.0, -9.0]])  # age, flag; a, b, flag
    soft = soften(x, COLUMNS, 0.1).numpy()
    np.testing.assert_allclose(soft[0], [1, 0.5, 1 / 3, 1 / 3, 1 / 3], atol=1e-6)  # half missing
    np.testing.assert_allclose(soft[1], [2, 0, 1, 0, 0], atol=1e-6)
    assert COLUMNS.read_input(soft[1:]).tolist() == [[70, 0]]


def test_starts_are_aligned_and_those_that_end_far_off_have_no_part_by_hand() -> None:
    old, young = [2.0, 0, 1, 0, 0], [-2.0, 0, 0, 1, 0]  # 70, a; 30, b
    other = [2.1, 0, 0, 1, 0]  # 71, b
    world = TrainedRows((1,))
    search = Search(Tableak.Config(), replace(world.knowledge, columns=COLUMNS), world.artifacts[0])
    inputs = np.array([[old, young], [young, old], [old, young], [other, other], [other, other]])
    apart, alike = np.array([0.001, 0.002, 0.003, 0.2, 0.2]), np.zeros(2, np.int64)
    rows, _ = search.pool(inputs, apart, alike)
    assert rows.tolist() == [[70, 0], [30, 1]]
    rows, _ = search.pool(inputs, np.full(5, 0.2), alike)
    assert rows.tolist() == [[70, 0], [30, 1]]
    rows, _ = search.pool(inputs[1:], np.array([0.9, 0.9, 0.001, 0.001]), alike)
    assert rows.tolist() == [[71, 1], [71, 1]]


def test_starts_that_agree_have_less_entropy_by_hand() -> None:
    agree = np.array([[[1.0, 0, 1, 0, 0]], [[1.0, 0, 1, 0, 0]]])
    split = np.array([[[0.0, 0, 1, 0, 0]], [[2.0, 0, 0, 1, 0]]])
    assert measure_entropy(split, COLUMNS)[0] == pytest.approx([0, np.log(2)], abs=1e-6)  # deviation 1
    assert (measure_entropy(agree, COLUMNS) < measure_entropy(split, COLUMNS)).all()


def test_uploads_without_the_last_layer_are_refused_in_words() -> None:
    world = TrainedRows((1,))
    cut = [
        replace(a, payload={k: v for k, v in a.payload.items() if "head" not in k}) for a in world.artifacts[1:]
    ]
    assert "holds the last layer" in Tableak().not_applicable([world.artifacts[0], *cut], world.knowledge)
