"""Whoever stands in a received folder runs nothing that lies in it, whichever module it is named after.

Traps: a file for every module of the standard library and of all that is installed here. Each leaves a mark where
it is imported, by the command itself or by an interpreter that the command starts.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from safetensors.numpy import save_file

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load
from tests.audit.cli.test_cli import list_commands
from tests.audit.importing.theirs import FLOWER, TRUTH, written
from tests.test_house import ROOT

COMMAND = Path(sys.executable).with_name("fedaudit")
CONFIG = """
seed: 7
federation: {dataset: digits, limit: [240, 20], clients: 4, availability: full, model: logreg}
method: {name: fedavg, rounds: 2, local_epochs: 1, lr: 0.2, weighting: uniform}
protections: [dp_gaussian]
attacks: [example_numbers]
accountants: [auto]
workers: 2
report: [json, html]
"""
NAMES = sorted(
    {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize", "usercustomize"} - {"fedaudit"}
)
COMMANDS = [
    text.split()
    for text in (
        "check .",  # starts interpreters
        "run . --phase account",
        "verify . --replay",
        "explain example_numbers --run .",
        "compare . .",
        "dp budget .",
        "dp calibrate --epsilon 8",
        "show config.yaml",
        "plan config.yaml",
        "run . --phase attack",
        "run . --phase score",
        "run . --phase report",
        "run .",
        "run config.yaml --out new",
        "run demo --out new",
        "harden config.yaml --out new",
        "sweep config.yaml --method fedavg --method fedprox --seeds 1 --out new",
        "run config.yaml --phase simulate --out new",
        "tools shred .",
        "check . --sign ../key.pem",
        "tools list methods",
        f"tools trust {'0' * 64}",
        "plan inbox",
        "import inbox --subject subject.yaml --truth truth --config own.yaml --out new --trust-plugins",
        "init subject-of-it.yaml --from inbox --truth truth",
        "init new.yaml",
        "tools recorder plain --out new.py",
        "dp claims claims.yaml --out new.pdf",
        "tools mechanism own_filter:make --like like.safetensors --clip 1 --epsilon 4",
        "tools guard inbox --truth truth/own.npz --key ../key.pem --log new.jsonl",
    )
]
QUICK = COMMANDS[:1]
PLAIN = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    (folder / "c.yaml").write_text(CONFIG)
    run, config = RunDir.create(folder / "run"), load(folder / "c.yaml")
    execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
    for name in ("inbox", "truth"):
        shutil.copytree(FLOWER / "inbox" if name == "inbox" else TRUTH, run.path / name)
    written(run.path, method=None)
    (run.path / "own.yaml").write_text("attacks: [label_counts_from_update]\nworkers: 0\nreport: [json]\n")
    shutil.copy(ROOT / "configs" / "claims" / "local_noise.yaml", run.path / "claims.yaml")
    (run.path / "own_filter.py").write_text("def make():\n    return lambda update: update\n")
    save_file({"w": np.zeros(9)}, run.path / "like.safetensors")
    return run.path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an Ed25519 key."""
    folder, key = tmp_path_factory.mktemp("keys"), Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder


def set_traps(folder: Path, mark: Path) -> None:
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r} + chr(10))\n")


@pytest.mark.sample(1)
@pytest.mark.dear("check .")
@pytest.mark.parametrize(
    "words", [c if c in QUICK else pytest.param(c, marks=pytest.mark.nightly) for c in COMMANDS], ids=" ".join
)
def test_no_module_of_the_working_directory_is_imported(
    words: list[str], audited: Path, keys: Path, tmp_path: Path
) -> None:
    here, mark = tmp_path / "run", tmp_path / "mark"
    shutil.copytree(audited, here)
    shutil.copytree(keys, tmp_path, dirs_exist_ok=True)
    set_traps(here, mark)
    done = subprocess.run(
        [str(COMMAND), *words], cwd=here, env=PLAIN, input="y\n", capture_output=True, text=True
    )
    assert not mark.exists(), mark.read_text()
    assert done.returncode in (0, 1, 3), done.stderr


def test_every_command_is_tried() -> None:
    texts = [" ".join(words) for words in COMMANDS]
    assert [c for c in list_commands() if not any(f"{text} ".startswith(f"{c} ") for text in texts)] == []


def test_the_traps_work(tmp_path: Path) -> None:
    set_traps(tmp_path, tmp_path / "mark")
    subprocess.run([sys.executable, "-c", "import multiprocessing"], cwd=tmp_path, env=PLAIN, capture_output=True)
    assert "multiprocessing" in (tmp_path / "mark").read_text()


def test_the_package_is_named_as_well(tmp_path: Path) -> None:
    """`python -m fedaudit` leaves the working directory out too, before it imports anything of others."""
    for name in ("typer", "pydantic", "torch", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('trapped')\n")
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("fedaudit "), done.stderr
