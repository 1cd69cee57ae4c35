"""RBCS-F and FedCS: who is asked, worked out by hand."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.devices.counted import Counted
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.selected import RBCSF, FedCS
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.selections.fedcs import choose_before
from fedaudit.fl.selections.rbcs_f import choose
from tests.fl.worlds import EVERYONE, TinyNet, run, same

COMMON: dict[str, Any] = {"rounds": 6, "local_epochs": 1, "batch_size": 8, "lr": 0.05}
TIMES = TimeModel(
    capability=np.array([0.5, 1.0, 3.0, 1.0, 2.0]), workload=Counted().workload(TinyNet(), (1, 6, 6))
)


@pytest.mark.parametrize(("penalty", "chosen"), [(1, [0, 1]), (0.1, [1, 2]), (0, [1, 2]), (1e6, [0, 1])])
def test_the_queues_of_four_clients(penalty: float, chosen: list[int]) -> None:
    assert choose(np.array([1.0, 2, 3, 4]), np.array([0, 0.5, 0.9, 0.2]), 2, penalty) == chosen


def test_the_choice_is_the_best_of_all_sets() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        times, owed, penalty = rng.uniform(1, 5, 7), rng.uniform(0, 2, 7), rng.uniform(0, 2)

        def value(some: Any, times: Any = times, owed: Any = owed, penalty: float = penalty) -> float:
            return float(penalty * max(times[k] for k in some) - sum(owed[k] for k in some))

        best = min(value(s) for s in combinations(range(7), 3))
        assert value(choose(times, owed, 3, penalty)) == pytest.approx(best)


def test_without_a_penalty_turns_go_round_and_clients_without_data_get_none() -> None:
    world = run(
        RBCSF(RBCSF.Config(clients_per_round=2, penalty=0.0, **COMMON)), script=EVERYONE, time_model=TIMES
    )
    assert [h["delivered"] for h in world.history] == [2] * 6
    fast = run(RBCSF(RBCSF.Config(clients_per_round=2, penalty=1e6, **COMMON)), script=EVERYONE, time_model=TIMES)
    lengths = [sum(h["round_length"] for h in w.history) for w in (fast, world)]
    assert lengths[0] < lengths[1]


def test_everybody_asked_is_fedavg() -> None:
    theirs = run(FedAvg(FedAvg.Config(**COMMON)), time_model=TIMES)
    assert same(theirs, run(FedCS(FedCS.Config(deadline=np.inf, **COMMON)), time_model=TIMES))
    assert same(theirs, run(FedCS(FedCS.Config(deadline=1e9, **COMMON)), time_model=TIMES))
    assert not same(theirs, run(FedCS(FedCS.Config(deadline=2e-5, **COMMON)), time_model=TIMES))


def test_a_deadline_that_nobody_keeps_is_refused_and_trains_no_empty_rounds() -> None:
    with pytest.raises(
        UserError, match=r"FedCS asks nobody: the fastest client takes .*, and the deadline is 1e-12"
    ):
        run(FedCS(FedCS.Config(deadline=1e-12, **COMMON)), script=EVERYONE, time_model=TIMES)


def test_the_client_that_lengthens_the_round_least_comes_next() -> None:
    """Ready at 1, 2, 6 with uploads of 3, 1, 1: client 1 ends at 3, client 0 then at 6, client 2 at 7."""
    ready, upload = np.array([1.0, 2, 6]), np.array([3.0, 1, 1])
    assert choose_before(ready, upload, 3.5) == [1] and choose_before(ready, upload, 6.5) == [0, 1]
    assert choose_before(ready, upload, 7.5) == [0, 1, 2] and choose_before(ready, upload, 2.0) == []
    assert choose_before(np.array([1.0, 2, 6]), np.zeros(3), 6.0) == [0, 1]
