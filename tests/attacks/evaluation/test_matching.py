"""People of a client beside people whom nobody trained on: who has nobody beside is not scored at all."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Truth, Unseen
from fedaudit.attacks.evaluation.matching import score_client


@dataclass
class Labelled:
    """One client with examples of these classes, and held-out people of those."""

    own: list[int]
    others: list[int]

    def client_examples(self, client: int) -> Examples:
        return _make(self.own, 0)

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return np.arange(10, 10 + len(self.own))

    def unseen(self, clients: object) -> Unseen:
        return Unseen(_make(self.others, 100), "held out", "classes")


def _make(labels: list[int], first: int) -> Examples:
    x = np.arange(first, first + len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    return Examples(x=x, y=np.array(labels, np.int64))


def score_first(people: Examples) -> NDArray[Any]:
    return np.stack([people.x[:, 0, 0, 0]], axis=1)  # as many readers do, which cannot read nobody


@pytest.mark.parametrize(("own", "others"), [([0, 1], [2, 3]), ([0, 1], []), ([], [0])])
def test_a_client_with_nobody_beside_it_is_asked_nothing(own: list[int], others: list[int]) -> None:
    def refuse(people: Examples) -> NDArray[Any]:
        raise AssertionError("asked")

    found = score_client(3, cast(Truth, Labelled(own, others)), np.random.default_rng(0), refuse)
    assert found.client == 3 and len(found.rows) == len(found.scores) == len(found.held_out_scores) == 0


def test_people_of_classes_that_held_out_people_have_are_scored_beside_them() -> None:
    truth = cast(Truth, Labelled([0, 1, 0], [0, 0, 0, 2]))
    found = score_client(3, truth, np.random.default_rng(0), score_first)
    assert found.rows == [10, 12] and found.scores[:, 0].tolist() == [0.0, 2.0]
    assert sorted(found.held_out_scores[:, 0]) == [100.0, 101.0, 102.0] and len(found.held_out) == 3
