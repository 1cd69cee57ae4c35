"""A config that is refused leaves no folder, so that the corrected one runs by the same command."""

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import fedaudit
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.planning.load import make_config
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import HERE, SMALL, VERDICTS

GOOD: dict[str, Any] = {
    "federation": SMALL,
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1},
    "attacks": [],
    "replay": {"clients": 0, "updates": []},
    "noise_audit": False,
    "report": ["json"],
    "workers": 0,
}
CENTRAL = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}
REFUSED: dict[str, dict[str, Any]] = {
    "a key that is misspelt": {"atacks": []},
    "a value of the wrong sort": {"method": {"rounds": 1.5}},
    "a setting that the method lacks": {"method": {"mu": 1.0}},
    "an attack that is not there": {"attacks": ["upcn"]},
    "an attack that can never apply": {"attacks": ["upcnn"]},
    "a data set that is not there": {"federation": {"dataset": {"name": "npz", "path": "nowhere.npz"}}},
    "a network whose code fails": {"federation": {"model": f"{HERE}:NoNetwork"}},
    "a network whose training fails": {"federation": {"model": f"{HERE}:FailsInTraining"}},
    "a protection that the method cannot have": {"protections": [CENTRAL]},
    "a rule for prototypes that is none": {"aggregator": {"name": "prototypes", "rule": "krum"}},
    "a server without examples": {"aggregator": "fltrust"},
    "more attackers than clients": {"adversary": {"name": "sign_flip", "clients": 9}},
    "an accountant that is not there": {"accountants": ["rpd"]},
    "an accountant with a wrong setting": {"accountants": [{"name": "rdp", "seconds": -1}]},
    "a class that nobody holds": {
        "matrix": {"availabilities": [{"name": "leaving", "label": 7, "leave": 1, "back": 2}]}
    },
    "a policy that is not there": {"policy": "mine.yaml"},
}


def lay_over(changes: dict[str, Any]) -> dict[str, Any]:
    config = deepcopy(GOOD)
    for key, value in changes.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) else value
    return config


def command(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(arguments))
    return found.exit_code, found.output


def run(config: dict[str, Any]) -> tuple[int, str]:
    Path("mine.yml").write_text(yaml.safe_dump(config))
    return command("run", "mine.yml")


def run_in_python(config: dict[str, Any]) -> tuple[int, str]:
    try:
        fedaudit.run(config, out="runs/mine")
    except Exception as error:
        return 2, str(error)
    return 0, ""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("start", [run, run_in_python])
@pytest.mark.parametrize("mistake", REFUSED)
def test_a_refused_config_leaves_no_folder(
    mistake: str, start: Callable[[dict[str, Any]], tuple[int, str]]
) -> None:
    code, output = start(lay_over(REFUSED[mistake]))
    assert code == 2, output
    assert sorted(os.listdir()) in ([], ["mine.yml"]), output


@pytest.mark.parametrize("start", [run, run_in_python])
def test_the_corrected_config_runs_by_the_same_command(
    start: Callable[[dict[str, Any]], tuple[int, str]],
) -> None:
    assert start(lay_over({"protections": [CENTRAL]}))[0] == 2
    assert start(lay_over({"protections": [CENTRAL], "method": {"weighting": "uniform"}}))[0] in VERDICTS
    assert Path("runs/mine/audit.json").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ["run", "mine.yml", "--phase", "simulate"],
        ["harden", "mine.yml"],
        ["sweep", "mine.yml", "--method", "fedprox", "--method", "feddyn", "--seeds", "2"],
        ["run", "mine.yml", "--out", "new/deep/run"],
    ],
)
def test_every_command_that_runs_a_config_leaves_nothing_of_a_refused_one(words: list[str]) -> None:
    Path("mine.yml").write_text(yaml.safe_dump(lay_over({"aggregator": "fltrust"})))
    code, output = command(*words)
    assert (code, os.listdir()) == (2, ["mine.yml"]), output


def test_an_import_that_is_refused_leaves_nothing() -> None:
    Path("inbox").mkdir()
    with pytest.raises(UserError):
        fedaudit.load_inbox("inbox")
    assert os.listdir() == ["inbox"]


def test_a_variant_that_is_refused_leaves_no_folder_and_the_corrected_one_runs() -> None:
    noised = {"variants": [{"name": "noised", "protections": [CENTRAL]}]}
    code, output = run(lay_over(noised))
    assert code == 2 and "noised" in output and not Path("runs/mine/variants").exists()
    noised["variants"][0]["method"] = {"weighting": "uniform"}
    assert run(lay_over(noised))[0] in VERDICTS


def test_a_finished_run_is_not_touched_by_a_config_that_is_refused() -> None:
    assert run(GOOD)[0] in VERDICTS
    before = {p: p.read_bytes() for p in Path("runs").rglob("*") if p.is_file()}
    for changes in ({"federation": {"clients": 5}}, {"aggregator": "fltrust"}, {"atacks": []}):
        assert run(lay_over(changes))[0] == 2
    assert {p: p.read_bytes() for p in Path("runs").rglob("*") if p.is_file()} == before


def test_files_of_somebody_else_stay_where_a_config_is_refused() -> None:
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/config.yaml").write_text("{}")
    Path("runs/mine/artifacts").mkdir()
    assert run(lay_over({"aggregator": "fltrust"}))[0] == 2
    assert sorted(os.listdir("runs/mine")) == ["artifacts", "config.yaml"]
    assert Path("runs/mine/config.yaml").read_text() == "{}"


def test_a_training_that_fails_later_goes_on_and_another_config_is_told_what_to_do() -> None:
    def fail(phase: str, done: int, total: int) -> None:
        if done == 2:
            raise ValueError("the third round never comes")

    four = lay_over({"method": {"rounds": 4}})
    with pytest.raises(ValueError, match="never comes"):
        execute(RunDir(Path("runs/mine")), make_config(four), ["simulate"], fail, skip_finished=False)
    code, output = run(lay_over({"method": {"rounds": 3}}))
    assert code == 2 and "method.rounds: 4, the config says 3" in output
    assert "set it back to go on there, choose another --out, or delete runs/mine" in output
    assert run(four)[0] in VERDICTS
