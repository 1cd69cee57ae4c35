"""Estimates for people follow what attacks took on this machine; what an audit runs does not."""

import pytest

from fedaudit.audit.phases import efforts
from fedaudit.audit.phases.efforts import correct_estimates, measure_machine, record_error
from fedaudit.audit.settings import index

SETUP, NOISED = "fedavg", "fedavg dp_gaussian"
CARDS = {"lookup": 3.0, "ridge": 2.0, "count_recovery": 0.02}


@pytest.fixture(autouse=True)
def empty_index(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


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


def test_attacks_of_moments_say_nothing_of_the_machine() -> None:
    record_error(SETUP, "count_recovery", 0.02, 0.09)
    times = measure_machine()
    assert correct_estimates(SETUP, {"count_recovery": 0.02})["count_recovery"] == 0.02 * times
