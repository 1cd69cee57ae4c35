"""Holders: a record is a content, wherever it stands, and everybody who trains on it holds it."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from fedaudit.audit.case.case import Split
from fedaudit.audit.case.holders import find_overlaps, holders, list_unknown
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import content

X = np.array([[1], [2], [1], [3], [2]], dtype=np.int64)  # rows 0 and 2 are one record, 1 and 4 another
DATA = Data(
    train=Arrays(x=X, y=np.zeros(5, np.int64)), test=Arrays(x=X[:0], y=np.zeros(0, np.int64)), classes=("a",)
)


@dataclass
class Case:
    """What is read of a case: who holds which rows, of three clients."""

    examples: Split = field(default_factory=Split)
    data: Data = DATA
    clients: int = 3
    simulated: bool = False


def case(**parts: list[int]) -> Case:
    return Case(Split(parts={int(name[1:]): np.array(rows) for name, rows in parts.items()}))


def test_equal_examples_are_one_record_at_one_client_and_at_several() -> None:
    found = holders((the_case := case(k0=[2, 0, 1], k1=[4], k2=[3, 4])).examples, the_case.data)  # type: ignore[arg-type]
    assert found == {
        content(X[0]): {0: (0, 2)},
        content(X[1]): {0: (1,), 1: (4,), 2: (4,)},
        content(X[3]): {2: (3,)},
    }
    assert find_overlaps(found) == {frozenset({(0, 2)}), frozenset({(0, 1), (1, 1), (2, 1)})}


def test_where_every_record_lies_once_nothing_overlaps() -> None:
    found = holders((the_case := case(k0=[0], k1=[1], k2=[3])).examples, the_case.data)  # type: ignore[arg-type]
    assert not find_overlaps(found) and len(found) == 3


def test_clients_of_whom_nobody_told_are_named_and_a_simulation_has_none() -> None:
    assert list_unknown((the_case := case(k1=[0])).simulated, the_case.clients, the_case.examples) == [0, 2]  # type: ignore[arg-type]
    assert (
        list_unknown((the_case := case(k0=[0], k1=[1], k2=[])).simulated, the_case.clients, the_case.examples)
        == []
    )  # type: ignore[arg-type]
    assert list_unknown((the_case := Case(simulated=True)).simulated, the_case.clients, the_case.examples) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("partition", "overlapping"), [({"name": "n_class", "examples_per_client": 40}, True), ("iid", False)]
)
def test_a_class_that_is_dealt_again_has_records_with_several_holders(
    partition: object, overlapping: bool
) -> None:
    federation = {"dataset": "digits", "clients": 20, "partition": partition}
    made = SimulatedCase(validate(Config, {"federation": federation, "method": {"name": "fedavg"}}, "test"))
    assert bool(find_overlaps(holders(made.examples, made.data))) is overlapping
