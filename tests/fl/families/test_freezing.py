"""FreezeFL's arithmetic against numbers worked out by hand."""

import numpy as np
import pytest
import torch

from fedaudit.fl.families.freezing import (
    decide,
    draw_without_replacement,
    importances,
    restart_utilities,
    utility,
)

WORTH, TIMES = (0.02, 0.03, 0.05, 0.10), (4, 3.2, 2.6, 2.2)


def test_importance_is_the_mean_change_of_a_weight() -> None:
    """F1."""
    start = {"a": torch.tensor([1.0]), "b": torch.tensor([2.0]), "count": torch.tensor(3)}
    trained = {"a": torch.tensor([1.5]), "b": torch.tensor([1.0]), "count": torch.tensor(9)}
    assert importances(start, trained, (("a", "b", "count"),), ("a", "b")) == [0.75]


@pytest.mark.parametrize(
    ("deadline", "beta", "frozen"),
    [(5, 0, 0), (5, 1, 0), (5, 1e5, 0)]  # in time with everything
    + [(3, 0, 0), (3, 1, 1), (3, 4, 2), (3, 1e5, 2)]
    + [(2, 0, 0), (2, 1, 2), (2, 4, 3), (2, 1e5, 3)],
)
def test_how_many_layers_a_client_freezes(deadline: float, beta: float, frozen: int) -> None:
    """F2. With beta 1e5 a power of T / tau is zero for every n, and its argmax would freeze nothing."""
    assert decide(WORTH, TIMES, deadline, beta) == frozen


def test_a_model_that_did_not_move_freezes_nothing_and_times_are_made_to_fall() -> None:
    assert decide((0, 0, 0), (3, 2, 1), 1.5, 4) == 0
    assert decide((1, 1, 1), (3, 4, 5), 2.0, 50) == 0  # freezing took longer: it counts as no longer
    assert decide((1, 1, 0), (4, 3, 1), 1.0, 1e6) == 1  # the layer that did not move is not all that is sent


@pytest.mark.parametrize("deadline", [1e-300, 0.0, -1.0])
def test_a_deadline_that_nobody_could_keep_orders_the_choices_as_a_very_short_one(deadline: float) -> None:
    """Log P - beta log tau, whatever the deadline: a server may send any number."""
    assert [decide(WORTH, TIMES, deadline, beta) for beta in (0, 1, 4, 1e5)] == [0, 2, 3, 3]
    assert decide(WORTH, (np.inf, 3.2, 2.6, 2.2), deadline, 1.0) == 2


def test_utility_of_two_clients() -> None:
    """F5."""
    together = [torch.tensor([0.2, 0.0]), torch.tensor([0.3, 0.1])]
    a = utility(1, [torch.tensor([0.4, 0.0])], together[1:])
    b = utility(2, [torch.tensor([0.2, 0.0]), torch.tensor([0.0, 0.4])], together)
    assert (a, b) == (pytest.approx(0.06), pytest.approx(0.08))
    assert 0.1 * 10 + 0.9 * a == pytest.approx(1.054) and 0.1 * 10 + 0.9 * b == pytest.approx(1.072)
    assert utility(1, [torch.tensor([-1.0, 0.0])], together[1:]) == 0


def test_a_warm_restart_moves_everybody_towards_the_mean() -> None:
    """F6."""
    found = restart_utilities(np.array([10, 0.5, 0.1, 1]), np.array([5, 1, 0, 8]), 60)
    assert found == pytest.approx([8.720259, 2.9, 2.9, 2.011724], abs=1e-6)


def test_draws_are_without_replacement_and_in_proportion() -> None:
    rng = np.random.default_rng(3)
    firsts = np.bincount([draw_without_replacement(np.array([1.0, 2.0, 5.0]), 1, rng)[0] for _ in range(4000)])
    assert firsts / 4000 == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=0.03)
    assert draw_without_replacement(np.array([1.0, 0.0, 0.0]), 3, rng) == [0, 1, 2]
    assert draw_without_replacement(np.ones(4), 9, rng) == [0, 1, 2, 3]
