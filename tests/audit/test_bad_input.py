"""Bad configs and damaged folders: one sentence, a hint, exit code 2, no traceback, nothing executed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from tests.audit.tiny import HERE, TEXT

RUNNER = CliRunner()


def refused(arguments: list[str], phrase: str, hint: str = "") -> None:
    """Run a command that must fail as a user may see it fail."""
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert lines[0].startswith("error: ") and lines[1].startswith("  hint: "), result.stderr
    assert len(lines) == 2 and len(lines[1]) > len("  hint: ")
    assert phrase in lines[0], lines[0]
    assert hint in lines[1], lines[1]
    assert "Traceback" not in result.output


CONFIGS = {  # what is wrong: (text, a phrase of the sentence, a phrase of the hint)
    "empty": ("", "is empty", "federation"),
    "only a comment": ("# nothing\n", "is empty", ""),
    "a list": ("- 1\n- 2\n", "holds [1, 2], not keys with values", ""),
    "a word": ("hello", "holds 'hello'", ""),
    "unclosed bracket": ("seed: 7\nmethod: {name: fedavg\n", "bad.yaml:3: not valid YAML", "one before it"),
    "a tab": ("method:\n\tname: fedavg\n", "bad.yaml:2: not valid YAML", ""),
    "duplicate key": (TEXT + "seed: 1\nseed: 2\n", "key 'seed' is already on line 9", ""),
    "duplicate inner key": ("method: {name: fedavg, lr: 1, lr: 2}", "bad.yaml:1: not valid YAML: key 'lr'", ""),
    "python object": ("seed: !!python/object/apply:os.system ['touch owned']", "bad.yaml:1: not", ""),
    "key that is a list": ("? [a, b]\n: 1\n", "bad.yaml:1: not valid YAML", ""),
    "no such date": (TEXT + "title: 2026-99-99\n", "not valid YAML: month", ""),
    "huge alias tree": (
        "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
        "unfolds to too many values",
        "aliases",
    ),
    "very deep": ("a: " + "[" * 3000 + "]" * 3000, "nested too deeply", ""),
    "deeper than a stack": ("[" * 900_000, "nested too deeply", ""),
    "lists on one line": ("- " * 400_000 + "a", "nested too deeply", ""),
    "unknown key": (TEXT + "atacks: []\n", "unknown key atacks", "did you mean 'attacks'?"),
    "unknown inner key": (TEXT.replace("clients: 4", "client: 4"), "unknown key federation.client", "'clients'"),
    "unknown deep key": (
        TEXT.replace("clients: 4", "holdout: {auxilary: 0.1}"),
        "unknown key federation.holdout.auxilary",
        "'auxiliary'",
    ),
    "no data set": ("federation: {clients: 2}\nmethod: fedavg\n", "federation.dataset is missing", ""),
    "no method": (TEXT.partition("method")[0], "method is missing", "NAME"),
    "method without a name": (TEXT.replace("name: fedavg, ", ""), "method must have a name", ""),
    "unknown method": (TEXT.replace("fedavg", "fedagv"), "method: no 'fedagv' in fl/methods/", "'fedavg'"),
    "unknown attack": (
        TEXT + "attacks: [{name: nothing_like_this}]\n",
        "attacks[0]: no 'nothing_like_this' in",
        "",
    ),
    "unknown report": (TEXT + "report: [docx]\n", "report[0]: no 'docx'", "known: html"),
    "unknown accountant": (TEXT + "accountants: [exakt]\n", "no 'exakt'", "'exact'"),
    "unknown policy": (TEXT + "policy: lax\n", "no policy 'lax'", "known: default"),
    "policy that is not there": (TEXT + "policy: ./lax.yaml\n", "no file lax.yaml", ""),
    "unknown setting": (
        TEXT.replace("rounds: 2", "round: 2"),
        "bad.yaml:8: unknown key method.round",
        "'rounds'",
    ),
    "setting of wrong type": (TEXT.replace("rounds: 2", "rounds: many"), "method.rounds", ""),
    "setting out of range": (TEXT.replace("rounds: 2", "momentum: 1.5"), "momentum must be < 1, got 1.5", ""),
    "words for a number": (
        TEXT.replace("clients: 4", "clients: ten"),
        "federation.clients must be a whole number, got 'ten'",
        "how many clients",
    ),
    "half a client": (TEXT.replace("clients: 4", "clients: 2.5"), "must be a whole number", ""),
    "true for a number": (TEXT.replace("clients: 4", "clients: true"), "must be a whole number", ""),
    "no clients": (TEXT.replace("clients: 4", "clients: 0"), "must be >= 1, got 0", ""),
    "absurdly many clients": (TEXT.replace("clients: 4", "clients: 1e9"), "must be <= 1000000", ""),
    "absurdly many rounds": (
        TEXT.replace("rounds: 2", "rounds: 99999999"),
        "method.rounds must be <= 1000000",
        "",
    ),
    "a number of 30 digits": (TEXT + f"seed: {'9' * 30}\n", "seed has 30 digits", "2^63"),
    "negative seed": (TEXT + "seed: -1\n", "seed must be >= 0", ""),
    "NaN": (TEXT.replace("rounds: 2", "lr: .nan"), "method.lr is NaN", ""),
    "infinity": (TEXT + "delta: .inf\n", "delta must be", ""),
    "delta 1": (TEXT + "delta: 1\n", "delta must be < 1", ""),
    "unknown device": (TEXT + "device: tpu\n", "device must be 'auto', 'cpu' or 'cuda'", ""),
    "negative workers": (TEXT + "workers: -1\n", "workers must be auto, torchrun or a whole number", ""),
    "no data left": (
        TEXT.replace("clients: 4", "holdout: {auxiliary: 0.6, reference: 0.5}"),
        "must leave data for the clients",
        "",
    ),
    "probability above 1": (TEXT.replace("clients: 4", "failures: {reply_loss: 1.5}"), "must be <= 1", ""),
    "group for a list": (TEXT + "attacks: {name: x}\n", "attacks must be a list", ""),
    "number for a plugin": (TEXT + "protections: [3]\n", "protections[0] must be a name", ""),
    "no such rounds": (TEXT + "record: every 0\n", "record must be all, last", ""),
    "rounds as one number": (TEXT + "record: 3\n", "record must be all, last", ""),
    "module that is not there": (
        TEXT.replace("name: fedavg", "name: 'no_such_module:X'"),
        "cannot load 'no_such_module:X'",
        "",
    ),
    "class that is not there": (
        TEXT.replace("name: fedavg", f"name: '{HERE}:Absent'"),
        "cannot load",
        "module:Class",
    ),
    "class of another kind": (
        TEXT.replace("name: fedavg", f"name: '{HERE}:NoPlugin'"),
        "is not a Method",
        "fedaudit.fl.method",
    ),
}


@pytest.mark.dear("very deep", "recording a client that is not there")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_config_is_refused_with_a_sentence_and_a_hint(name: str, tmp_path: Path) -> None:
    text, phrase, hint = CONFIGS[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    refused(["show", str(path)], phrase, hint)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize("name", ["unknown key", "unknown setting", "NaN"])
def test_run_refuses_before_it_makes_a_complete_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(CONFIGS[name][0])
    refused(["run", str(path), "--out", str(tmp_path / "out")], CONFIGS[name][1])
    assert not (tmp_path / "out" / "config.yaml").exists()


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "large.yaml").write_bytes(b"#" * 2_000_000)
    refused(["show", str(tmp_path / "image.yaml")], "is not text", "UTF-8")
    refused(["show", str(tmp_path / "large.yaml")], "larger than 1 MB")
    refused(["show", str(tmp_path / "absent.yaml")], "no file", "configs/")
    refused(["show", str(tmp_path)], "is not a run folder: it has no config.yaml")
    refused(["show"], "needs a config or --schema")


def run_folder(tmp_path: Path, **changes: str) -> Path:
    """A folder as a finished simulation leaves it, with some of its files replaced."""
    from fedaudit.audit.attestation import chain
    from fedaudit.audit.case.data_digests import of_data, of_population
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.case.simulated import SimulatedCase
    from fedaudit.audit.evidence.phase import FIXED
    from fedaudit.audit.settings.config import load
    from fedaudit.audit.settings.resolve import resolve

    source = tmp_path / "config-source.yaml"
    source.write_text(TEXT)
    run = RunDir.create(tmp_path / "run")
    config = load(source)
    run.adopt(config, FIXED)
    settings = {k: resolve(config)[k] for k in FIXED}
    entry = {"started": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "settings": settings}
    run.write_json(run.phases, {"simulate": entry})
    for file in (run.ledger, run.metrics, run.artifacts / "manifest.jsonl"):
        run.write(file, b"")
    case = SimulatedCase(config)
    run.write_json(run.data, {"data": of_data(case.data), "population": of_population(case.population)})
    run.write_json(run.path / "environment.json", {})
    chain.begin(run.path, config, "simulate", settings)
    named = {name.replace("_json", ".json").replace("_yaml", ".yaml"): text for name, text in changes.items()}
    for name, text in named.items():
        run.write(run.path / name, text.encode())
    chain.end(run.path, "simulate")  # an owner whose chain fits what is wrong
    return run.path


FOLDERS = {  # what is wrong: (files of the run folder, command, phrase)
    "phases that are no JSON": ({"phases_json": "{"}, "run --phase account", "phases.json is damaged"),
    "phases of another shape": (
        {"phases_json": "[1]"},
        "run --phase account",
        "damaged: Input should be an object",
    ),
    "unknown phase": ({"phases_json": '{"x": {}}'}, "run --phase account", "damaged: x.started: Field required"),
    "simulation unfinished": ({"phases_json": "{}"}, "run --phase account", "needs a finished simulate"),
    "ledger that is no JSON": ({"ledger_jsonl": "nonsense\n"}, "run --phase account", "line 1 is not a release"),
    "ledger with a NaN": (
        {
            "ledger_jsonl": '{"round": 0, "kind": "x", "sender": "client/0", "observers": ["server"], '
            '"mechanism": "gaussian", "noise_std": NaN, "sensitivity": 1.0}\n'
        },
        "run --phase account",
        "noise_std must be a finite number",
    ),
    "ledger with an unknown mechanism": (
        {
            "ledger_jsonl": '{"round": 0, "kind": "x", "sender": "client/0", "observers": ["server"], '
            '"mechanism": "magic", "noise_std": 1.0, "sensitivity": 1.0}\n'
        },
        "run --phase account",
        "mechanism must be one of none, gaussian",
    ),
    "no attack yet": ({}, "check", "is not a finished run: its attack phase did not end"),
    "config without a method": ({"config_yaml": "seed: 1"}, "run --phase account", "federation is missing"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_damaged_run_folder_is_refused(name: str, tmp_path: Path) -> None:
    changes, command, phrase = FOLDERS[name]
    changes = {k.replace("_jsonl", ".jsonl"): v for k, v in changes.items()}
    folder = run_folder(tmp_path, **changes)
    record = (".lock", "phases.json", "chain.json")  # the others say that a phase was begun
    files = [p for p in folder.rglob("*") if p.is_file() and p.name not in record]
    before = {p: p.read_bytes() for p in files}
    refused([*command.split(), str(folder), "--trust-plugins"], phrase)
    assert before == {p: p.read_bytes() for p in before}


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    (tmp_path / "c.yaml").write_text(TEXT)
    refused(["run", str(tmp_path / "absent"), "--phase", "attack"], "no run folder")
    refused(["run", str(tmp_path / "other"), "--phase", "attack"], "is not a run folder")
    config = str(tmp_path / "c.yaml")
    refused(["run", config, "--out", str(tmp_path / "file")], "is a file, not a run folder")
    refused(["run", config, "--out", str(tmp_path / "other")], "holds 'thesis.txt'")
    refused(["run", config, "--workers", "many", "--out", str(tmp_path / "o")], "workers must be auto")


def test_a_received_folder_does_not_decide_what_code_runs(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / "owned.py").write_text("open('owned', 'w')\nclass X: pass\n")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("checks: []", "checks: ['owned:X']"))
    assert "owned:X" in config.read_text()
    for command in ("attack", "account", "score", "report"):
        done = RUNNER.invoke(app, ["run", str(folder), "--phase", command])
        assert done.exit_code == 2 and "would run here" in done.stderr and "--trust-plugins" in done.stderr
    assert "owned" not in sys.modules and not Path("owned").exists()


def test_trusting_a_folder_runs_its_phases(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    result = RUNNER.invoke(app, ["run", str(folder), "--phase", "account", "--trust-plugins"])
    assert result.exit_code == 0, result.output
    budgets = json.loads((folder / "evidence" / "budgets.json").read_text())
    assert [b["epsilon_upper"] for b in budgets] == [float("inf")] * 3  # nothing accounted is no bound


def test_other_settings_are_refused_by_key_and_both_values(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    other = tmp_path / "other.yaml"
    other.write_text(TEXT.replace("clients: 4", "clients: 5"))
    phrase = "was made with federation.clients: 4, the config says 5"
    refused(["run", str(other), "--phase", "account", "--out", str(folder)], phrase, "--out")
    refused(["run", str(other), "--out", str(folder)], phrase)


def test_the_installed_command_fails_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace("clients: 4", "clints: 4"))
    done = subprocess.run([sys.executable, "-m", "fedaudit", "show", str(path)], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (f"error: {path}:4: unknown key federation.clints\n  hint: did you mean 'clients'?\n")


@pytest.mark.parametrize("command", ["tools list accountants", "plan quickstart"])
def test_a_command_whose_reader_has_gone_goes_on_and_ends_as_it_would_have(command: str) -> None:
    read, write = os.pipe()
    os.close(read)  # whoever read has gone
    words = [sys.executable, "-m", "fedaudit", *command.split()]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_what_cannot_be_printed_is_an_error_in_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "fedaudit", "tools", "list", "accountants"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith(
        "error: what was to be printed cannot be written: No space"
    )
