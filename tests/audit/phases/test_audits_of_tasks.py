"""Whole audits of networks that give a number, several findings, a risk or a mask."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.errors import UserError

MODELS = {"regression": "mlp", "several": "mlp", "survival": "mlp", "segment": "fcn"}


def write_data(path: Path, task: str) -> Path:
    draws = np.random.default_rng(1)
    x = draws.random((140, 1, 4, 4), dtype=np.float32) if task == "segment" else draws.normal(size=(140, 6))
    number = np.asarray(x, np.float32).reshape(140, -1)[:, 0] + draws.normal(size=140)
    y: Any = {
        "regression": number,
        "several": np.stack([number > 0, number > 1], 1).astype(np.int64),
        "survival": np.stack([np.exp(-number), draws.random(140) < 0.7], 1),
        "segment": (x.reshape(140, 4, 4) > 0.5).astype(np.int64) if task == "segment" else None,
    }[task]
    np.savez(path, x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    return path


def configure(folder: Path, task: str, **more: Any) -> Config:
    dataset = {"name": "npz", "path": str(write_data(folder / "data.npz", task))}
    settings: dict[str, Any] = {
        "federation": {
            "dataset": dataset | ({"task": task} if task == "survival" else {}),
            "clients": 3,
            "model": MODELS[task],
            "availability": "full",
        },
        "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1, "batch_size": 10, "lr": 0.05},
        "attacks": ["loss_threshold"],
        "noise_audit": False,
        "report": [],
        "workers": 0,
    }
    found: Config = validate(Config, settings | more, "config")
    return found


def test_membership_is_asked_by_the_tasks_own_loss_and_classes_are_not(tmp_path: Path) -> None:
    run, config = RunDir.create(tmp_path / "run"), configure(tmp_path, "regression")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    files = {f["name"]: f for f in (json.loads(p.read_text()) for p in run.evidence.glob("0*.json"))}
    assert files["loss_threshold"]["status"] == "ran" and files["loss_threshold"]["evidence"]
    for name, needs in (("confidence", "a class for each example"), ("dlg", "images")):
        listed = configure(tmp_path, "regression", attacks=["loss_threshold", name])
        with pytest.raises(UserError, match=rf"attacks\[1\]: {name} can never apply: it needs {needs}"):
            execute(RunDir.create(tmp_path / name), listed, ["simulate"], lambda *_: None, skip_finished=True)


@pytest.mark.parametrize("asked", [{"adversaries": ["sign_flip"]}, {"availabilities": ["bernoulli"]}])
def test_what_counts_lost_answers_by_class_is_refused_without_classes(asked: Any, tmp_path: Path) -> None:
    run, config = RunDir.create(tmp_path / "run"), configure(tmp_path, "regression", matrix=asked)
    with pytest.raises(UserError, match="lost answers are counted by class, and the examples have no classes"):
        execute(run, config, ["simulate"], lambda *_: None, skip_finished=True)


@pytest.mark.nightly
@pytest.mark.parametrize("task", MODELS)
def test_every_task_is_audited_by_whatever_applies_and_nothing_fails(task: str, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    config = configure(tmp_path, task, attacks="auto")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    files = [json.loads(p.read_text()) for p in run.evidence.glob("0*.json")]
    assert {f["name"] for f in files if f["status"] == "failed"} == set()
    assert {"loss_threshold", "example_numbers"} <= {f["name"] for f in files if f["status"] == "ran"}


def test_a_method_that_is_made_for_classes_refuses_a_number_before_a_round(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    config = configure(tmp_path, "regression", method={"name": "fedproto", "rounds": 1}, attacks=[])
    with pytest.raises(UserError, match="FedProto is made for classes, and the task of the data is regression"):
        execute(run, config, ["simulate"], lambda *_: None, skip_finished=True)


def test_a_partition_by_class_refuses_findings_of_which_there_are_no_groups(tmp_path: Path) -> None:
    run, config = RunDir.create(tmp_path / "run"), configure(tmp_path, "several")
    federation = config.require_simulated().federation.model_dump() | {"partition": {"name": "dirichlet"}}
    unequal = configure(tmp_path, "several", federation=federation)
    with pytest.raises(UserError, match="deals examples out by groups of labels, and several has none"):
        execute(run, unequal, ["simulate"], lambda *_: None, skip_finished=True)


def test_record_level_privacy_of_a_survival_is_refused_before_a_round(tmp_path: Path) -> None:
    run, private = RunDir.create(tmp_path / "run"), [{"name": "dp_sgd"}]
    config = configure(tmp_path, "survival", protections=private)
    with pytest.raises(UserError, match="the loss of survival is no sum over examples"):
        execute(run, config, ["simulate"], lambda *_: None, skip_finished=True)


@pytest.mark.parametrize("task", MODELS)
def test_the_plan_of_every_task_says_what_will_be_tried(task: str, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    data = write_data(tmp_path / "data.npz", task)
    declared = ", task: survival" if task == "survival" else ""
    config.write_text(
        f"federation: {{dataset: {{name: npz, path: {data}{declared}}}, clients: 3, model: {MODELS[task]}}}\n"
        "method: {name: fedavg, rounds: 1}\n"
    )
    said = CliRunner().invoke(app, ["plan", str(config), "--all"])
    assert said.exit_code == 0, said.output
    assert "loss_threshold" in said.output and "needs a class for each example" in said.output
