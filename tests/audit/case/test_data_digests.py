"""Digests: whatever a run is made from shows in its digest."""

from dataclasses import replace

import numpy as np

from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import Population

TRAIN = Arrays(x=np.arange(12, dtype=np.float32).reshape(12, 1, 1, 1), y=np.arange(12) % 2)
DATA = Data(train=TRAIN, test=TRAIN, classes=("a", "b"), mean=(0.0,), std=(1.0,))
POPULATION = Population(
    data=DATA,
    parts=[np.array([0, 1, 2]), np.array([3, 4])],
    auxiliary=np.array([5, 6]),
    reference=np.array([7]),
    server=np.array([8]),
    own=[np.array([9]), np.array([10])],
)


def test_every_example_and_how_models_see_it_is_in_the_digest_of_the_data() -> None:
    brighter = Arrays(x=TRAIN.x + 1, y=TRAIN.y)
    renamed = Arrays(x=TRAIN.x, y=1 - TRAIN.y)
    others = [replace(DATA, train=brighter), replace(DATA, test=brighter), replace(DATA, train=renamed)]
    others += [replace(DATA, classes=("b", "a")), replace(DATA, mean=(0.5,)), replace(DATA, std=(0.5,))]
    assert len({of_data(data) for data in [DATA, *others]}) == 7
    assert of_data(replace(DATA)) == of_data(DATA)


def test_who_holds_what_and_what_was_held_back_is_in_the_digest_of_the_population() -> None:
    moved, none = np.array([11]), np.zeros(0, np.int64)
    others = [replace(POPULATION, parts=[*POPULATION.parts[:1], moved])]
    others += [replace(POPULATION, own=[*POPULATION.own[:1], moved])]
    others += [replace(POPULATION, **{name: moved}) for name in ("auxiliary", "reference", "server")]  # type: ignore[arg-type]
    others += [replace(POPULATION, auxiliary=none, reference=np.array([5, 6, 7]))]
    assert len({of_population(population) for population in [POPULATION, *others]}) == 7
    assert of_population(replace(POPULATION)) == of_population(POPULATION)
