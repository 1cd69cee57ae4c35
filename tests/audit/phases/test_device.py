"""`device: auto` computes where a measurement says, once a run, and stays there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.observer.shadows import ShadowTrainer
from fedaudit.audit.phases.device import DEVICE, DeviceChoice, decide
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from tests.accelerator import DEVICE as THERE
from tests.accelerator import accelerator, apart

MADE_WITH = {"versions": {"python": "3.11"}, "hardware": {"cores": "2"}}
FEDERATION = {"dataset": "digits", "clients": 4, "availability": "full", "model": {"name": "mlp", "hidden": [8]}}


def tiny(**more: Any) -> Config:
    method = {"name": "fedavg", "rounds": 1, "batch_size": 20}
    return validate(Config, {"federation": FEDERATION, "method": method, "attacks": [], "workers": 0, **more}, "")


def test_cuda_is_chosen_where_it_is_as_fast_with_the_runs_batches_and_with_small_ones() -> None:
    chosen = [
        decide({2: (a, b), 32: (c, d)}, "cuda")[DEVICE]
        for a, b, c, d in ((1.0, 2.0, 3.0, 3.0), (2.1, 2.0, 1.0, 9.0), (1.0, 2.0, 3.1, 3.0))
    ]
    assert chosen == ["cuda", "cpu", "cpu"]


def test_the_reason_states_what_was_measured() -> None:
    assert list(decide({2: (0.031, 0.25)}, "cuda").values()) == [
        "cuda",
        "16 clients trained 8 steps with batches of 2 0.031 s on cuda, 0.25 s on the processors",
    ]


def test_a_device_on_which_it_cannot_train_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ShadowTrainer, *given: Any, **more: Any) -> NDArray[np.float32]:
        if self.device == "cuda":
            raise torch.OutOfMemoryError
        return np.zeros(0, np.float32)

    monkeypatch.setattr(ShadowTrainer, "__call__", refuse)
    settled = DeviceChoice(RunDir(tmp_path), tiny(), "cuda").settle()
    assert settled[DEVICE] == "cpu" and "with batches of 20 not at all on cuda" in settled["measured before"]


@pytest.mark.parametrize("kept", ["cpu", "cuda"])
def test_a_run_goes_on_where_it_began(tmp_path: Path, kept: str) -> None:
    run, config = RunDir(tmp_path), tiny()
    run.write_json(run.environment, MADE_WITH)
    assert DeviceChoice(run, config).keep({DEVICE: kept, "measured before": "so"}).device == kept
    hardware = run.read_json(run.environment)["hardware"]
    assert hardware == {"cores": "2", DEVICE: kept, "measured before": "so"}
    assert DeviceChoice(run, config, "cuda").settle() == {DEVICE: kept, "measured before": "so"}


def test_nothing_is_measured_without_an_accelerator(tmp_path: Path) -> None:
    choice = DeviceChoice(RunDir(tmp_path), tiny(), "")
    assert choice.settle() == {} and choice.keep({}) is choice.config


@pytest.mark.parametrize(("device", "said"), [("cpu", set()), ("auto", {DEVICE, "measured before"})])
def test_a_device_that_was_asked_for_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any, said: set[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(DeviceChoice, "measure", lambda _: {2: (2.0, 1.0)})
    run = RunDir.create(tmp_path / "run")
    execute(run, tiny(device=device), ["simulate"], lambda *_: None, skip_finished=True)
    assert {DEVICE, "measured before"} & run.read_json(run.environment)["hardware"].keys() == said


def test_a_simulation_that_begins_once_more_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its environment is written anew, and a machine with CUDA would be measured."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    run, settled = RunDir.create(tmp_path / "run"), {DEVICE: "cpu", "measured before": "so"}
    run.write_json(run.environment, MADE_WITH | {"hardware": settled})
    execute(run, tiny(), ["simulate"], lambda *_: None, skip_finished=True)
    hardware = run.read_json(run.environment)["hardware"]
    assert settled.items() < hardware.items() and "processor" in hardware


@pytest.mark.gpu
@apart
def test_both_devices_are_timed_with_small_batches_and_the_runs(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with accelerator():
        took = DeviceChoice(run, tiny(), THERE).measure()
    assert [*took] == [2, 20]
    assert all(seconds > 0 for pair in took.values() for seconds in pair)
