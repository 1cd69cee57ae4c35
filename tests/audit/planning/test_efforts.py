"""Estimates for people follow what attacks took on this machine; what an audit runs does not."""

import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.phases import attack, simulate
from fedaudit.audit.planning import efforts
from fedaudit.audit.planning.efforts import CONTROL, correct_estimates, measure_machine, record_error
from fedaudit.audit.planning.pace import correct_controls, estimate_controls, measure_step
from fedaudit.audit.settings import index
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.machine import processor_seconds
from fedaudit.fl.runtime.side_by_side import collect, share_cores
from fedaudit.fl.runtime.workers import one_thread
from tests.audit.experiments.test_cells import BASE
from tests.audit.tiny import Linear

SETUP, NOISED = "fedavg", "fedavg dp_gaussian"
CARDS = {"lookup": 3.0, "ridge": 2.0, "count_recovery": 0.02}


@pytest.fixture(autouse=True)
def empty_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_an_attack_that_took_thrice_as_long_is_expected_to_do_so_again_and_the_others_with_it() -> None:
    record_error(SETUP, "lookup", 3.0, 9.0)
    assert correct_estimates(SETUP, CARDS) == {"lookup": 9.0, "ridge": 6.0, "count_recovery": 0.06}


def test_under_other_protections_an_attack_may_take_another_time() -> None:
    record_error(NOISED, "lookup", 3.0, 30.0)
    record_error(SETUP, "lookup", 3.0, 3.0)
    assert correct_estimates(NOISED, CARDS)["lookup"] == 30.0
    assert correct_estimates(SETUP, CARDS)["lookup"] == 3.0


def test_before_the_first_run_the_machine_itself_is_measured_once() -> None:
    times = measure_machine()
    assert times > 0 and index.recall(efforts.MACHINE, efforts.SPEED) == times
    assert correct_estimates(SETUP, CARDS) == {k: s * times for k, s in CARDS.items()}


def test_a_busy_machine_is_measured_on_one_thread_whose_time_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def time_products() -> float:
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return float(len(seen))

    monkeypatch.setattr(time, "process_time", time_products)
    with threadpool_limits(2):
        measure_machine()
        assert set(seen) == {1}
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {2}


def test_attacks_of_moments_say_nothing_of_the_machine() -> None:
    record_error(SETUP, "count_recovery", 0.02, 0.09)
    times = measure_machine()
    assert correct_estimates(SETUP, {"count_recovery": 0.02})["count_recovery"] == 0.02 * times


@pytest.mark.usefixtures("few_epochs")
def test_planted_leaks_are_estimated_by_a_step_that_is_timed_and_then_by_what_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efforts, "LEAST", 1e-6)  # these few may take less on a quick machine
    federation = BASE["federation"] | {
        "model": {"name": "mlp", "hidden": [5]}
    }  # a step of a model of ours is kept
    changes = {"federation": federation, "attacks": ["loss_threshold", "lookup"], "workers": 2}
    config = validate(Config, BASE | changes, "test")
    folder, controls = RunDir.create(tmp_path / "run"), {"memorised", "prototypes", ""}
    simulate.run(folder, config, lambda *_: None)
    case, setup = SimulatedCase(config.require_simulated()), config.require_simulated().method.name

    def estimate() -> dict[str, float]:
        parameters = case.network.size.parameters
        return estimate_controls(controls, case, case.training, case.network.make, config.replay, parameters)

    before = estimate()
    assert before.keys() == {"memorised", "prototypes"} and min(before.values()) > 0
    said: list[str] = []
    attack.run(folder, config, lambda name, *_: said.append(name))
    assert said[1].startswith("attack (planted leaks, about ")  # before the first attack: it may take minutes
    error = index.recall(efforts.ERRORS, f"{CONTROL}memorised {setup}")
    assert isinstance(error, float)
    after = correct_controls(setup, estimate())
    assert after["memorised"] == pytest.approx(before["memorised"] * error)
    assert estimate() == before


def test_what_copies_of_an_attack_take_is_part_of_what_it_takes() -> None:
    def work(_: int) -> float:
        since = time.process_time()
        sum(i * i % 7 for i in range(1_000_000))
        return time.process_time() - since

    began = processor_seconds()
    with one_thread(), share_cores(2):
        taken = sum(collect(range(4), work))
    assert processor_seconds() - began > 0.8 * taken > 0  # wherever each was done


class Slow(Linear):
    """Takes its time for each example, and counts them."""

    seen: ClassVar[int] = 0

    def forward(self, x: Tensor) -> Tensor:
        Slow.seen += len(x)
        until = time.process_time() + 0.005 * len(x)
        while time.process_time() < until:
            pass
        return super().forward(x)


def test_of_a_slow_network_few_examples_are_timed_however_large_the_step() -> None:
    federation = BASE["federation"] | {"model": {"name": f"{__name__}:Slow", "width": 5}}
    case = SimulatedCase(validate(Config, BASE | {"federation": federation}, "test").require_simulated())
    Slow.seen, rows = 0, np.arange(300) % len(case.data.train)
    seconds = measure_step(case, case.network.make, rows, 300)
    assert 1.5 <= seconds < 3 and Slow.seen <= 100
