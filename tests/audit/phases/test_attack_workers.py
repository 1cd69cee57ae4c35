"""Attacks side by side give what they give one after another, to the last bit, on any number of processes."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases import attack, simulate
from fedaudit.audit.phases import attack as one_attack
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import collect
from tests.audit.experiments.test_cells import BASE

pytestmark = pytest.mark.usefixtures("few_epochs")

ATTACKS = [
    "count_recovery",
    {"name": "prototype_membership", "least_auxiliary": 5},
    "class_list",
    "prototype_difference",
    "hidden_images",
    "loss_threshold",
    {"name": "upcnn", "epochs": 1, "least_steps": 120, "width": 64},
    {"name": "rmia", "references": 4, "epochs": 1},
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = RunDir.create(tmp_path_factory.mktemp("run") / "run")
    simulate.run(made, config(0), lambda *_: None)
    return made


def config(workers: int) -> Config:
    replay = {"sizes": [1], "clients": 2, "groups": 4, "updates": [[1, 1, 2]]}
    return validate(Config, BASE | {"attacks": ATTACKS, "workers": workers, "replay": replay}, "test")


def evidence(run: RunDir) -> dict[str, Any]:
    found = {f.name: json.loads(f.read_bytes()) for f in sorted(run.evidence.glob("*.json"))}
    for of in found.values():
        of.pop("seconds", None)
    return found


@pytest.fixture(scope="module")
def alone(run: RunDir) -> dict[str, Any]:
    """One after another."""
    attack.run(run, config(1), lambda *_: None)
    return evidence(run)


@pytest.mark.sample(1)
@pytest.mark.parametrize("workers", [2, 3])
def test_evidence_is_the_same_on_any_number_of_processes(
    run: RunDir, alone: dict[str, Any], workers: int
) -> None:
    said = list[tuple[str, int, int]]()
    attack.run(run, config(workers), lambda *words: said.append(words))
    assert evidence(run) == alone
    assert sum(of.get("status") == "ran" for of in alone.values()) == 7
    assert said[-1] == ("attack", len(ATTACKS), len(ATTACKS))
    assert [at for _, at, _ in said] == sorted(at for _, at, _ in said)


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.nightly
@pytest.mark.parametrize("end", [die, lambda _: collect([1, 2], die)], ids=["whole", "a part"])
def test_an_attack_that_takes_its_process_with_it_ends_the_phase_in_a_sentence(
    run: RunDir, alone: dict[str, Any], monkeypatch: pytest.MonkeyPatch, end: Callable[[object], object]
) -> None:
    here, whole = os.getpid(), one_attack.attack_once

    def one(*of: Any) -> Any:
        if of[1] == "class_list" and os.getpid() != here:
            end(None)
        return whole(*of)

    monkeypatch.setattr(attack, "attack_once", one)
    with pytest.raises(UserError, match="attack class_list: its process was ended by SIGKILL"):
        attack.run(run, config(2), lambda *_: None)
    monkeypatch.undo()
    attack.run(run, config(2), lambda *_: None)
    assert evidence(run) == alone
