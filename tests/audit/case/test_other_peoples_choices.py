"""A received folder chooses nothing: no download, no path outside, no code, no key that says two things."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import list_files
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json

RUNNER = CliRunner()
CONFIG = """
federation: {{dataset: {{name: npz, path: {path}}}, clients: 2, model: logreg, partition: {{name: iid}}}}
method: {{name: fedavg, rounds: 1, local_epochs: 1}}
attacks: [example_numbers]
workers: 0
report: [json]
"""


def write_data(path: Path) -> Path:
    x, y = np.random.default_rng(0).random((40, 1, 6, 6), np.float32), np.arange(40) % 2
    np.savez(path, x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    return path


Received = tuple[Path, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the data set outside of it that it was made with."""
    folder = tmp_path_factory.mktemp("audited")
    data = write_data(folder / "mine.npz")
    (folder / "c.yaml").write_text(CONFIG.format(path=data))
    run, config = RunDir.create(folder / "run"), load(folder / "c.yaml")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    return run.path, data


@pytest.fixture
def audited(made: Received, tmp_path: Path) -> Received:
    return Path(shutil.copytree(made[0], tmp_path / "received")), made[1]


@pytest.mark.parametrize("name", ["check", "verify", "run --phase score", "run --phase attack"])
def test_a_folders_config_reads_no_data_of_its_own_choice(name: str, audited: Received) -> None:
    run, data = audited
    done = RUNNER.invoke(app, [*name.split(), str(run)])
    assert done.exit_code == 2 and f"reads npz from '{data}', outside of {run}" in done.stderr, done.output


def test_data_that_the_reader_gives_are_read(audited: Received, tmp_path: Path) -> None:
    run, _ = audited
    mine = write_data(tmp_path / "copy.npz")
    done = RUNNER.invoke(app, ["check", str(run), "--data", f"npz={mine}"])
    assert done.exit_code in (0, 1, 3), done.output


@pytest.mark.parametrize("entry", ["npz", "=x", "npz=", "npz=/nowhere/at/all", "npz=\0"])
def test_data_are_given_by_name_and_path(entry: str, audited: Received) -> None:
    done = RUNNER.invoke(app, ["check", str(audited[0]), "--data", entry])
    assert done.exit_code == 2 and "--data" in done.stderr and "hint: " in done.stderr, done.output


def test_a_folders_config_downloads_nothing_and_one_that_is_named_what_was_agreed_to(tmp_path: Path) -> None:
    text = "federation: {dataset: {name: mnist, download: true}, clients: 2, model: logreg}\nmethod: fedavg\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match="would download mnist into"):
        locate(load(tmp_path / "config.yaml"))
    assert locate(load(tmp_path / "config.yaml", trust=True)).settings["download"] is True
    config = RunDir(tmp_path).load_config().require_simulated()
    assert "download" not in locate(config).settings
    derived = overridden(config, {"seed": 8, "federation": {"dataset": {"download": True}}}, where="a variant")
    assert "download" not in locate(derived).settings


def locate(config: Config) -> PluginSpec:
    return config.locate_files(config.require_simulated().federation.dataset)


@pytest.mark.parametrize(
    ("part", "key", "name"),
    [("dataset", "path", "jsonl"), ("dataset", "tokenizer", "tokenizer"), ("model", "path", "hf")],
)
def test_a_received_config_opens_no_file_outside_by_any_setting(
    part: str, key: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "run" / "config.yaml"
    file.parent.mkdir()
    spec = {"name": "hf" if part == "model" else "jsonl", "path": "texts.jsonl", key: str(tmp_path / "other")}
    federation = {"dataset": "notes", "model": "tiny_gpt"} | {part: spec}
    file.write_text(yaml.safe_dump({"federation": federation, "method": "fedavg"}))
    for data in ({}, {name: tmp_path / "mine"}):
        data |= {"jsonl": tmp_path / "texts.jsonl"} if key == "tokenizer" else {}
        config = RunDir(file.parent).load_config(data=data).require_simulated()
        case = SimulatedCase(config)
        if name in data:
            assert config.locate_files(getattr(config.federation, part)).settings[key] == str(tmp_path / "mine")
            continue
        with pytest.raises(UserError, match=f"reads {name} from"):
            _ = case.dataset if part == "dataset" else case.network.make
    assert tmp_path / "other" in list_files(load(file).require_simulated())


@pytest.mark.parametrize(("key", "value"), [("policy", "/etc/policy.yaml"), ("policy", "../mine.yaml")])
def test_a_received_config_reads_no_policy_outside(key: str, value: object, tmp_path: Path) -> None:
    settings = {"federation": {"dataset": "digits", "model": "logreg"}, "method": "fedavg", key: value}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    config = RunDir(tmp_path).load_config()
    with pytest.raises(UserError, match=f"reads {key} from"):
        _ = config.locate_policy()


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}']
)
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="stands twice"):
        parse_json(text)


FILES = ("audit.json", "phases.json", "chain.json", "environment.json")


@pytest.mark.parametrize("name", FILES)
def test_a_folder_whose_json_says_two_things_is_refused(name: str, audited: Received) -> None:
    run, data = audited
    text = (run / name).read_text()
    at = text.index("{") + 1
    (run / name).write_text(f'{text[:at]}"twice": 1, "twice": 2, {text[at:]}')
    done = RUNNER.invoke(app, ["explain", "x", "--run", str(run)])
    if name != "audit.json":
        done = RUNNER.invoke(app, ["check", str(run), "--data", f"npz={data}"])
    assert done.exit_code == 2 and "stands twice" in done.stderr, done.output


@pytest.mark.parametrize("option", ["--terms", "--baseline"])
def test_a_pipe_among_the_arguments_is_refused_at_once(option: str, audited: Received, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = RUNNER.invoke(app, ["check", str(audited[0]), option, str(tmp_path / "pipe")])
    assert done.exit_code == 2 and "is a pipe" in done.stderr, done.output


def test_the_case_of_a_folder_is_opened_with_what_the_reader_gave(audited: Received) -> None:
    run = RunDir.open(audited[0])
    with pytest.raises(UserError, match="outside of"):
        _ = open_case(run, run.load_config()).data
    assert len(open_case(run, run.load_config(data={"npz": audited[1]})).data.train) == 30
