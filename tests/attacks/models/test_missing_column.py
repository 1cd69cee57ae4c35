"""A value of a known person is learned from a model that knows the person by heart, and from no other."""

from dataclasses import replace

import numpy as np
import pytest

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.models.missing_column import Answers, MissingColumn, list_values, place_values
from fedaudit.fl.data.columns import Column
from fedaudit.fl.tasks.survival import Survival
from tests.attacks.models.rows_by_heart import RowsByHeart

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", ["diabetes", "patients"])
def test_a_model_that_knows_people_by_heart_gives_values_away_beyond_both_others(name: str) -> None:
    world = RowsByHeart(name)
    attack = MissingColumn(MissingColumn.Config(people=75))
    assert not attack.not_applicable(world.artifacts, world.knowledge)
    claim = attack.run(world.artifacts, world.knowledge, RNG)
    found = {(e.measure, e.control): e for e in attack.measure(claim, world, RNG)}
    known, beyond = found["value_known", "none"], found["value_beyond", "none"]
    assert [b.name for b in known.baselines] == ["imputed from public rows", "a model that never saw the person"]
    assert all(known.value > b.value for b in known.baselines) and not beyond.note.startswith("nothing")
    assert beyond.interval is not None and beyond.interval[0] > 0
    negative, positive = found["value_beyond", "negative"], found["value_beyond", "positive"]
    assert negative.interval is not None and negative.interval[0] < 0
    assert positive.interval is not None and positive.interval[0] > 0


@pytest.mark.parametrize("name", ["diabetes", "patients"])
def test_a_model_of_public_people_gives_nothing_away_and_the_note_says_so(name: str) -> None:
    world = RowsByHeart(name, taught=False)
    attack = MissingColumn(MissingColumn.Config(people=75))
    claim = attack.run(world.artifacts, world.knowledge, RNG)
    [beyond] = [
        e for e in attack.measure(claim, world, RNG) if (e.measure, e.control) == ("value_beyond", "none")
    ]
    assert beyond.value <= 0 and beyond.note.startswith("nothing beyond both")


def test_what_is_gained_is_beyond_the_better_of_both() -> None:
    """Two people, two columns; one value is missing. Right: model 3 of 3, imputed 2, the other model 1."""
    known = np.array([[True, True], [True, False]])
    imputed, other = np.array([[True, False], [True, False]]), np.array([[False, False], [True, True]])
    assert Answers(known, np.ones((2, 2), bool), imputed, other).gain.tolist() == [0.5, 0]


def test_values_that_are_filled_in_are_levels_or_middles_of_fifths() -> None:
    ward = Column(name="ward", kind="category", levels=("a", "b", "c"))
    assert list_values(ward, np.zeros(4)).tolist() == [0, 1, 2]
    years = np.arange(100.0)
    assert list_values(Column(name="age"), years).tolist() == pytest.approx([10, 30, 50, 69, 89], abs=1)
    assert list_values(Column(name="sex"), np.array([1.0, 2, 2, np.nan])).tolist() == [1, 2]
    assert place_values(np.array([0.0, 44, 99]), np.array([10.0, 50, 90])).tolist() == [0, 1, 2]


def test_without_public_people_or_a_model_it_does_not_apply() -> None:
    world = RowsByHeart()
    assert "trained on auxiliary examples" in MissingColumn().not_applicable(
        [], Knowledge(classes=2, shape=(10,))
    )
    assert MissingColumn().not_applicable([], world.knowledge) == "no global model was recorded"
    said = MissingColumn().not_applicable([], replace(world.knowledge, task=Survival()))
    assert "depends on who else is asked" in said
    said = MissingColumn().not_applicable([], Knowledge(classes=2, shape=(1, 8, 8)))
    assert said == "the clients' examples are no rows of a table, and have no column to miss"
