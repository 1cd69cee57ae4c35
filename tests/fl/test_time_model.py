"""The simulated clock against the figures of FreezeFL's code."""

import numpy as np
import pytest

from fl.errors import UserError
from fl.methods.fedavg import FedAvg
from fl.time_model import (
    FEMNIST_CNN,
    MEGABYTE,
    SHAKESPEARE_RNN,
    TimeModel,
    Workload,
    analytic_profile,
    capabilities,
    round_length,
)
from tests.fl.worlds import run

CNN, RNN = 4 * 4_377_534, 4 * 817_872  # bytes


def clock(workload: Workload = FEMNIST_CNN) -> TimeModel:
    return TimeModel(capability=np.array([1.0, 0.5, 3.0]), workload=workload)


def test_the_models_have_their_published_sizes() -> None:
    assert pytest.approx(16.7, abs=0.05) == CNN / MEGABYTE
    assert pytest.approx(3.1, abs=0.05) == RNN / MEGABYTE


def test_a_known_task_time_by_hand() -> None:
    time = clock().task_time(1, bytes_down=3 * MEGABYTE, bytes_up=MEGABYTE, examples=100, epochs=2, frozen=3)
    assert time == pytest.approx(4 / (100 * 0.5) + 1.44e-4 * 100 * 2 / (0.4 * 0.5))


def test_communication_and_computation_are_equal_at_227_examples_of_the_cnn() -> None:
    exchange = clock().task_time(0, bytes_down=CNN, bytes_up=CNN, examples=0, epochs=3)
    training = clock().task_time(0, bytes_down=0, bytes_up=0, examples=227, epochs=3)
    assert training == pytest.approx(exchange, rel=0.03)


def test_the_slowest_client_takes_six_times_as_long_as_the_fastest() -> None:
    times = {k: clock().task_time(k, bytes_down=CNN, bytes_up=9, examples=50, epochs=3) for k in (0, 1, 2)}
    assert times[1] / times[2] == pytest.approx(6)
    assert round_length(times) == times[1] and round_length({}) == 0


def test_freezing_saves_time_and_never_costs_any() -> None:
    for workload in (FEMNIST_CNN, SHAKESPEARE_RNN):
        times = [
            clock(workload).task_time(0, bytes_down=RNN, bytes_up=RNN, examples=100, epochs=3, frozen=n)
            for n in range(6)
        ]
        assert times == sorted(times, reverse=True) and times[0] > times[3]


def test_capabilities_are_eight_shuffled_tiers_of_equal_size() -> None:
    kappa = capabilities(80, np.random.default_rng(1))
    values, counts = np.unique(kappa, return_counts=True)
    assert values == pytest.approx(0.5 + np.arange(8) * 2.5 / 7)
    assert set(counts) == {10} and not (np.diff(kappa) >= 0).all()
    assert len(capabilities(3, np.random.default_rng(1))) == 3


def test_the_analytic_profile_is_a_third_forward_and_two_thirds_of_what_is_not_frozen() -> None:
    assert analytic_profile([1, 2, 1], 12.0) == pytest.approx((12, 10, 6))
    with pytest.raises(UserError, match=r"layer costs must be >= 0 and not all 0, got \[0, 0\]"):
        analytic_profile([0, 0], 1.0)


def test_a_workload_without_bandwidth_is_refused() -> None:
    with pytest.raises(UserError, match="bandwidth, compute and profile must be > 0"):
        Workload(bandwidth=0, compute=1, profile=(1.0,))


def test_a_round_takes_as_long_as_its_slowest_client_heard() -> None:
    capability = np.array([1.0, 0.5, 1.0, 3.0, 2.0])
    model = TimeModel(capability=capability, workload=FEMNIST_CNN)
    config = FedAvg.Config(rounds=3, local_epochs=2, batch_size=8)
    history = run(FedAvg(config), time_model=model).history
    size = history[0]["bytes_down"] / 5 + history[0]["bytes_up"] / 4
    slowest = max(
        model.task_time(k, bytes_down=int(size), bytes_up=0, examples=n, epochs=2)
        for k, n in {0: 7, 1: 20, 2: 11, 4: 30}.items()
    )
    assert history[0]["round_length"] == pytest.approx(slowest)
