"""Code that a config names: loaded by file path, nothing else, and from a file only where its user agreed."""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.side_by_side import side_by_side
from tests.audit.test_bad_input import refused, run_folder
from tests.audit.tiny import TEXT, VERDICTS

RUNNER = CliRunner()
PLAIN = "federation: {dataset: digits, clients: 4}\nmethod: {name: fedavg, rounds: 2}\nworkers: 0\n"
EVIL = "open('owned', 'w').close()\nclass Evil: pass\n"
PHASES = ("run --phase attack", "run --phase account", "run --phase score", "run --phase report")
COMMANDS = (*PHASES, "check", "compare", "dp budget")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; modules of a test's own are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path  # type: ignore[misc]
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_file_beside_a_config_is_not_importable_unless_it_is_named(here: Path) -> None:
    for name in ("gradio", "mine", "own_helper"):
        (here / f"{name}.py").write_text(
            "from fedaudit.fl.methods.fedavg import FedAvg\nclass Mine(FedAvg): ...\n"
        )
    (here / "c.yaml").write_text(PLAIN.replace("fedavg", "mine:Mine"))
    path = list(sys.path)
    shown = RUNNER.invoke(app, ["show", "c.yaml", "--trust-plugins"])
    assert shown.exit_code == 0 and "name: mine:Mine" in shown.output
    assert sys.path == path and sys.modules["mine"].__file__ == str(here / "mine.py")
    assert importlib.util.find_spec("gradio") is None and importlib.util.find_spec("own_helper") is None


def test_an_installed_module_comes_before_a_file_of_its_name(here: Path) -> None:
    (here / "json.py").write_text(EVIL)
    (here / "c.yaml").write_text(PLAIN.replace("fedavg", "json:Evil"))
    refused(["show", "c.yaml"], "c.yaml:2: method: cannot load 'json:Evil'")
    assert not (here / "owned").exists()


def test_two_configs_each_get_the_file_beside_them(here: Path) -> None:
    for folder, rounds in (("one", 11), ("two", 12)):
        (here / folder).mkdir()
        (here / folder / "mine.py").write_text(
            "from dataclasses import dataclass\nfrom fedaudit.fl.methods.fedavg import FedAvg\n"
            "class Mine(FedAvg):\n    @dataclass(frozen=True, kw_only=True)\n    class Config(FedAvg.Config):\n"
            f"        rounds: int = {rounds}\n"
        )
        (here / folder / "c.yaml").write_text("federation: {dataset: digits}\nmethod: 'mine:Mine'\n")
    for folder, rounds in (("one", 11), ("two", 12), ("one", 11)):
        assert f"rounds: {rounds}" in RUNNER.invoke(app, ["show", f"{folder}/c.yaml", "--trust-plugins"]).output


def test_code_imported_anew_remembers_nothing_and_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINE_SEEN", raising=False)
    (here / "mine.py").write_text("SEEN = []\nclass Mine:\n    seen = {}\n")
    foreign.bring("mine:Mine", [here])
    first = importlib.import_module("mine")
    first.SEEN.append(1)
    first.Mine.seen[1] = 2
    for _ in range(2):
        with foreign.importing_anew(["mine:Mine"]):
            again = importlib.import_module("mine")
            assert again.SEEN == [] and again.Mine.seen == {} and "MINE_SEEN" not in os.environ
            again.SEEN.append(3)
            os.environ["MINE_SEEN"] = "3"
    assert importlib.import_module("mine") is first and first.SEEN == [1] and "MINE_SEEN" not in os.environ


def test_a_package_beside_the_config_may_have_several_files(here: Path) -> None:
    (here / "mypack").mkdir()
    (here / "mypack" / "__init__.py").write_text("")
    (here / "mypack" / "base.py").write_text("from fedaudit.fl.methods.fedavg import FedAvg\n")
    (here / "mypack" / "prox.py").write_text("from mypack.base import FedAvg\nclass Prox(FedAvg): ...\n")
    (here / "c.yaml").write_text(PLAIN.replace("fedavg", "mypack.prox:Prox"))
    assert RUNNER.invoke(app, ["show", "c.yaml", "--trust-plugins"]).exit_code == 0


def test_a_plugin_that_cannot_be_imported_says_which_file_and_why(here: Path) -> None:
    (here / "mine.py").write_text("import own_helper\n")
    (here / "own_helper.py").write_text("")
    (here / "c.yaml").write_text(PLAIN.replace("fedavg", "mine:Mine"))
    refused(
        ["show", "c.yaml", "--trust-plugins"],
        "cannot load 'mine:Mine': it imports own_helper, and beside a config only what is named is loaded",
        "put both into a folder, such as my_mine, with an empty __init__.py",
    )
    (here / "mine.py").write_text("import not_there\n")
    refused(["show", "c.yaml", "--trust-plugins"], "cannot load 'mine:Mine': No module named 'not_there'")


ATTACK = """
from dataclasses import replace
from fedaudit.attacks.attack import Attack
from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.fl.kinds import Kind
class Mine(Attack):
    card = replace(CountRecovery.card, requires=(Kind.NUM_EXAMPLES,), also_reads=(), aids=(), control="")
    def run(self, view, knowledge, rng): return {}
    def measure(self, claim, truth, rng): return []
"""
WITH_ATTACK = TEXT + "attacks: ['mine:Mine']\nnoise_audit: false\nreport: [json]\nworkers: 0\n"


def test_a_run_folder_holds_the_code_that_it_names_and_says_where_that_was_changed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine.py").write_text(ATTACK)
    (here / "c.yaml").write_text(WITH_ATTACK)
    assert RUNNER.invoke(app, ["run", "c.yaml", "--out", "out", "--trust-plugins"]).exit_code in VERDICTS
    (here / "mine.py").unlink()
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    out = str(here / "out")
    for command in (
        ["check", out],
        ["verify", out],
        ["show", out],
        ["compare", out, out],
        ["dp", "budget", out],
        ["explain", "mine.Mine", "--run", out],
    ):
        sys.modules.pop("mine", None)
        asked = RUNNER.invoke(app, command)
        assert asked.exit_code == 2 and f"{here / 'out' / 'mine.py'} would run here" in asked.stderr
        done = RUNNER.invoke(app, [*command, "--trust-plugins"])
        assert done.exit_code in VERDICTS, done.stderr
    (here / "out" / "mine.py").write_text(ATTACK + "# another\n")
    sys.modules.pop("mine")
    refused(
        ["check", str(here / "out"), "--trust-plugins"],
        "the code of attacks mine:Mine is not what attack ran: its SHA-256 differs",
    )
    (here / "out" / "mine.py").unlink()
    sys.modules.pop("mine")
    refused(
        ["check", str(here / "out"), "--trust-plugins"],
        f"cannot load 'mine:Mine': no mine.py in {here / 'out'}",
        "copy mine.py, or the folder mine of a package, there, or install it",
    )


def test_a_phase_whose_code_was_edited_is_made_again(here: Path) -> None:
    (here / "mine.py").write_text(ATTACK)
    (here / "c.yaml").write_text(WITH_ATTACK)
    command = ["run", "c.yaml", "--out", "out", "--trust-plugins"]
    assert "failed:" not in RUNNER.invoke(app, command).output
    (here / "mine.py").write_text(ATTACK.replace("return []", "return None"))
    sys.modules.pop("mine")
    again = RUNNER.invoke(app, command)
    assert again.exit_code in VERDICTS
    why = "TypeError: Mine: measure() must return list[Evidence], got None"
    assert f"failed: mine.Mine: {why}" in again.output
    assert RUNNER.invoke(app, ["check", "out", "--trust-plugins"]).exit_code in VERDICTS


def _put(config: dict[str, object], place: str) -> None:
    """`evil:Evil` at a place such as variants.0.method.name; groups and lists on the way are made."""
    at: object = config
    *path, last = place.split(".")
    for key, following in zip(path, [*path[1:], last], strict=True):
        fresh: object = [{"name": "x"}] if following == "0" else {}
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, fresh)  # type: ignore[attr-defined]
    at[last] = "evil:Evil"  # type: ignore[index]


PLACES = (
    "method.name",
    "federation.dataset",
    "federation.model",
    "federation.partition",
    "federation.availability",
    "protections.0.name",
    "attacks.0.name",
    "accountants.0.name",
    "variants.0.method.name",
    "variants.0.protections.0.name",
    "report",
    "method.some_setting",
)


@pytest.mark.sample(5)
@pytest.mark.parametrize("place", PLACES)
def test_a_received_folder_runs_no_code_of_its_own_unless_trusted(place: str, here: Path) -> None:
    folder = run_folder(here)
    config = yaml.safe_load(PLAIN)
    if place == "report":
        config[place] = ["evil:Evil"]
    else:
        _put(config, place)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for beside in (here, folder):
        (beside / "evil.py").write_text(EVIL)
    for command in COMMANDS:
        arguments = [*command.split(), *[str(folder)] * (2 if command == "compare" else 1)]
        result = RUNNER.invoke(app, arguments)
        if command in PHASES:
            assert result.exit_code == 2 and f"{folder / 'evil.py'} would run here" in result.stderr, (
                result.stderr
            )
            assert "config.yaml:" in result.stderr and "--trust-plugins" in result.stderr
        assert not (here / "owned").exists() and "evil" not in sys.modules, command


def test_a_title_with_a_colon_is_not_code(here: Path) -> None:
    (here / "c.yaml").write_text(PLAIN + "title: 'audit:Second'\n")
    assert not load(here / "c.yaml").list_code()


def test_a_name_that_is_no_module_and_class_is_refused_before_anything_is_loaded(here: Path) -> None:
    (here / "a-b.py").write_text(EVIL)
    for name in ("a-b:Evil", "..:x", "../a-b:Evil", ":Evil", "a-b:", "x:y:z", "http://x/y"):
        (here / "c.yaml").write_text(PLAIN.replace("name: fedavg", f"name: '{name}'"))
        refused(["show", "c.yaml"], f"c.yaml:2: method: cannot load '{name}'", "module:Class")
    assert not (here / "owned").exists()


def test_a_process_that_is_not_forked_is_given_the_files_it_needs(here: Path) -> None:
    (here / "plan").mkdir()
    (here / "plan" / "mine.py").write_text(
        "from fedaudit.fl.runtime.plugin import Plugin\nclass Mine(Plugin): ...\n"
    )
    made = """
import pickle, sys
from functools import partial
from pathlib import Path
from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.side_by_side import side_by_side
foreign.bring("mine:Mine", [Path("plan")])
sys.stdout.buffer.write(pickle.dumps(foreign.Carried(partial(foreign.find("mine:Mine")))))
"""
    sent = subprocess.run([sys.executable, "-c", made], capture_output=True, check=True).stdout
    read = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer).value()).__module__)"
    got = subprocess.run([sys.executable, "-c", read], input=sent, capture_output=True, check=True)
    assert got.stdout.split() == [b"mine"]


def test_a_file_that_is_gone_since_an_earlier_run_keeps_no_process_from_its_work(tmp_path: Path) -> None:
    folder = tmp_path / "earlier"
    folder.mkdir()
    (folder / "gone_since.py").write_text("class Net: ...\n")
    foreign.bring("gone_since:Net", [folder])
    try:
        shutil.rmtree(folder)
        ended: list[object] = []
        side_by_side([2], _halve, lambda *_: None, lambda _, result: ended.append(result), processes=1)
        assert ended == [1.0]
    finally:
        del sys.modules["gone_since"]


def _halve(number: int, _: object) -> float:
    return number / 2


def test_a_module_that_raises_is_named_with_what_it_said(here: Path) -> None:
    (here / "mine.py").write_text("raise RuntimeError('the disk\\nis full')\n")
    (here / "c.yaml").write_text(PLAIN.replace("fedavg", "mine:Mine"))
    refused(
        ["show", "c.yaml", "--trust-plugins"], "method: cannot load 'mine:Mine': RuntimeError: the disk is full"
    )
    assert "mine" not in sys.modules


def test_the_tests_own_plugins_are_found_everywhere(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT + "variants: [{name: a, method: {name: 'x.y:Z'}}]\n")
    found = dict(load(tmp_path / "c.yaml").list_code())
    assert found["variants[0].method.name"] == "x.y:Z"
    assert found["federation.model.name"] == "tests.audit.tiny:Linear" and len(found) == 5
