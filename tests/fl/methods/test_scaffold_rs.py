"""Scaffold/RS is SCAFFOLD at alpha = 1 and FedRS in its first round."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.methods.class_softmax import FedRS, ScaffoldRS
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, close, run, same

PLAIN = SETTINGS | {"momentum": 0.0}


def scaffold_rs(**settings: Any) -> ScaffoldRS:
    return ScaffoldRS(ScaffoldRS.Config(**(PLAIN | settings)))


@pytest.mark.parametrize("option", ["I", "II"])
def test_alpha_one_is_scaffold_to_the_last_bit(option: Any) -> None:
    scaffold = Scaffold(Scaffold.Config(**PLAIN, option=option))
    assert same(run(scaffold_rs(alpha=1.0, option=option), **WORLD), run(scaffold, **WORLD))


@pytest.mark.parametrize("option", ["I", "II"])
def test_alpha_below_one_is_not_scaffold(option: Any) -> None:
    scaffold = Scaffold(Scaffold.Config(**PLAIN, option=option))
    assert not close(run(scaffold_rs(option=option), **WORLD), run(scaffold, **WORLD))


@pytest.mark.parametrize("settings", [{}, {"soft": True}, {"least_steps": 12}])
def test_the_first_round_is_fedrs_and_later_ones_are_not(settings: dict[str, Any]) -> None:
    for rounds, equal in ((1, True), (3, False)):
        fedrs = FedRS.Config(**(PLAIN | {"rounds": rounds} | settings), weighting="uniform")
        assert close(run(scaffold_rs(rounds=rounds, **settings)), run(FedRS(fedrs))) is equal


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(scaffold_rs, tmp_path, **WORLD)


@pytest.mark.nightly
def test_two_processes_agree_with_one() -> None:
    assert same(run(scaffold_rs(), script=EVERYONE), run(scaffold_rs(), script=EVERYONE, workers=2))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="alpha must be <= 1, got 2"):
        scaffold_rs(alpha=2.0)
    with pytest.raises(UserError, match="missing_below must be >= 1, got 0"):
        scaffold_rs(missing_below=0)
    with pytest.raises(UserError, match="freeze_missing_wd"):
        scaffold_rs(freeze_missing_wd=True)
