"""The weighted mean: numbers by hand, one client to the last bit, counters the nearest whole number."""

import numpy as np
import pytest
import torch

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.model import State


def mean(*states: tuple[State, float]) -> State:
    total = WeightedMean()
    for state, weight in states:
        total.add(state, weight)
    return total.value()


def test_numbers_by_hand_with_both_signs_and_unequal_weights() -> None:
    a = {"w": torch.tensor([[1.0, -2.0]]), "b": torch.tensor(4.0)}
    b = {"w": torch.tensor([[5.0, 6.0]]), "b": torch.tensor(-4.0)}
    found = mean((a, 1), (b, 3))
    assert found["w"].tolist() == [[4.0, 4.0]]  # (1 + 15) / 4, (-2 + 18) / 4
    assert found["b"].item() == -2.0  # (4 - 12) / 4


def test_numpy_agrees_on_many_states() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(50, 7)).astype(np.float32), rng.integers(1, 900, 50)
    found = mean(*(({"w": torch.from_numpy(v)}, float(n)) for v, n in zip(values, weights, strict=True)))
    expected = np.average(values.astype(np.float64), axis=0, weights=weights).astype(np.float32)
    assert found["w"].numpy().tolist() == expected.tolist()


def test_one_client_comes_back_to_the_last_bit() -> None:
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(1)) * 1e3
    values[:3] = torch.tensor([1e-45, 3.4e38, -0.0])
    for weight in (1.0, 3.0, 7.0, 599.0, 60_000.0):
        assert torch.equal(mean(({"w": values}, weight))["w"], values)


def test_equal_clients_come_back_whatever_their_weights() -> None:
    value = torch.tensor([0.1, -1 / 3, 1e-30])
    assert torch.equal(mean(({"w": value}, 3), ({"w": value}, 11), ({"w": value}, 601))["w"], value)


def test_only_the_ratio_of_the_weights_counts() -> None:
    a, b = {"w": torch.tensor([0.3])}, {"w": torch.tensor([-0.7])}
    assert torch.equal(mean((a, 1), (b, 2))["w"], mean((a, 512), (b, 1024))["w"])
    assert not torch.equal(mean((a, 1), (b, 2))["w"], mean((a, 2), (b, 1))["w"])


def test_a_weight_of_zero_leaves_a_client_out() -> None:
    a, b = {"w": torch.tensor([0.3])}, {"w": torch.tensor([-0.7])}
    assert torch.equal(mean((a, 5), (b, 0))["w"], a["w"])


def test_counters_take_the_whole_number_next_to_the_mean() -> None:
    a, b, c = ({"n": torch.tensor(n), "w": torch.ones(1)} for n in (3, 9, 5))
    found = mean((a, 1), (b, 2), (c, 1))
    assert found["n"].item() == 6 and found["n"].dtype == torch.int64  # 26 / 4
    assert mean((a, 100), (b, 1), (c, 1))["n"].item() == 3


def test_precision_is_the_states_own() -> None:
    state = {"h": torch.tensor([0.1], dtype=torch.float16), "d": torch.tensor([0.1]).double()}
    assert {k: v.dtype for k, v in mean((state, 2)).items()} == {"h": torch.float16, "d": torch.float64}


def test_what_was_added_is_not_changed() -> None:
    value = torch.tensor([1.0, 2.0])
    mean(({"w": value}, 2), ({"w": value}, 3))
    assert value.tolist() == [1.0, 2.0]


def test_weights_that_sum_to_zero_are_refused() -> None:
    for states in ((), (({"w": torch.ones(1)}, 0.0),)):
        with pytest.raises(ZeroDivisionError, match="weights sum to zero"):
            mean(*states)
