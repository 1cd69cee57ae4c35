"""The command line: quick to start, honest exit codes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedaudit.audit.cli.cards import MESSAGES
from fedaudit.audit.cli.main import app
from fedaudit.audit.cli.tools import PluginKind
from fedaudit.audit.settings.catalog import SHELVES
from tests.audit.tiny import TEXT

RUNNER = CliRunner()
HEAVY = ("torch", "pydantic", "matplotlib", "numpy", "rich.console", "yaml", "scipy")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom fedaudit.audit.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "explain" in done.stdout


def list_commands() -> dict[str, Any]:
    """Every command by its name, those of groups with the group's name before."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = dict[str, Any]()
    for name, one in commands.items():
        named |= {f"{name} {n}": c for n, c in one.commands.items()} if hasattr(one, "commands") else {name: one}
    return named


@pytest.mark.parametrize("group", ["", "dp", "tools"])
def test_help_fits_on_one_screen_and_cuts_no_sentence(group: str) -> None:
    done = RUNNER.invoke(app, [*group.split(), "--help"], terminal_width=80)
    lines = done.stdout.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 80
    assert "..." not in done.stdout.replace("[ARGS]...", ""), done.stdout


def test_checking_the_names_in_a_config_does_not_import_torch(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    code = (
        "import sys\nfrom pathlib import Path\nfrom fedaudit.audit.settings.config import load\n"
        f"load(Path({str(path)!r}))\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lists are kept in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("kind", list(PluginKind))
def test_every_kind_of_plugin_can_be_listed(kind: PluginKind) -> None:
    done = RUNNER.invoke(app, ["tools", "list", kind.value])
    assert done.exit_code == 0, done.output
    assert "cannot be loaded" not in done.stdout
    for line in done.stdout.splitlines():
        name, title, text, *_more = line.split("\t")
        assert name and title and text, line


def test_each_kind_that_can_be_listed_has_a_shelf() -> None:
    assert [k.value for k in PluginKind] == [*SHELVES, MESSAGES]


def test_cards_are_printed() -> None:
    methods = RUNNER.invoke(app, ["tools", "list", "methods"]).stdout
    assert "fedavg\tFedAvg\t" in methods and "arXiv:1602.05629" in methods
    assert "\tmodel_delta, control_delta\tglobal_model, control_global\t" in methods  # SCAFFOLD
    attacks = RUNNER.invoke(app, ["tools", "list", "attacks"]).stdout
    assert "\tserver, honest but curious; knows architecture, auxiliary data\tlocal_prototypes\t" in attacks


def test_show_prints_every_default(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    done = RUNNER.invoke(app, ["show", str(path)])
    assert done.exit_code == 0, done.output
    assert "evaluate_every: 1" in done.stdout and "batch_size: 50" in done.stdout


def test_a_users_own_plugin_beside_the_config_is_found(tmp_path: Path) -> None:
    (tmp_path / "beside_the_config.py").write_text(
        "from fedaudit.fl.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    path = tmp_path / "c.yaml"
    path.write_text(TEXT.replace("name: fedavg", "name: 'beside_the_config:Mine'"))
    done = RUNNER.invoke(app, ["show", str(path), "--trust-plugins"])
    assert done.exit_code == 0, done.output
    assert "name: beside_the_config:Mine" in done.stdout


@pytest.mark.parametrize("code", [0, 1, 3])
def test_code_of_a_users_own_does_not_choose_the_exit_code_which_says_the_verdict(
    tmp_path: Path, code: int
) -> None:
    (tmp_path / "leaving.py").write_text(
        "import sys\nfrom fedaudit.fl.protections.secure_aggregation import SecureAggregation\n"
        "class Leaving(SecureAggregation):\n"
        f"    def withholds(self):\n        sys.exit({code})\n"
    )
    config = tmp_path / "c.yaml"
    config.write_text(TEXT + "protections: ['leaving:Leaving']\n")
    done = RUNNER.invoke(app, ["plan", str(config), "--trust-plugins"])
    assert done.exit_code == 2 and f"leaving.py, line 5: it ends the program with {code}" in done.stderr


def test_an_unexpected_error_is_short_and_says_how_to_see_more(tmp_path: Path) -> None:
    (tmp_path / "falls_over.py").write_text(
        "from fedaudit.fl.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    class Config(FedAvg.Config):\n"
        "        def __post_init__(self):\n            raise RuntimeError('the disk\\nis full')\n"
    )
    path = tmp_path / "c.yaml"
    path.write_text(TEXT.replace("name: fedavg", "name: 'falls_over:Mine'"))
    done = RUNNER.invoke(app, ["show", str(path), "--trust-plugins"])
    assert done.exit_code == 2
    first, hint = done.stderr.splitlines()[:2]
    assert first == "error: unexpected RuntimeError in falls_over.py, line 5: the disk is full"
    assert "--debug" in hint and "what that line was given" in hint and "report" not in hint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("dp calibrate --epsilon 8 --rounds 1.5", "--rounds must be a whole number, got '1.5'"),
        ("dp calibrate --epsilon x", "--epsilon must be a number, got 'x'"),
    ],
)
def test_a_value_of_the_wrong_sort_is_said_in_a_sentence(words: str, said: str) -> None:
    done = RUNNER.invoke(app, words.split())
    assert done.exit_code == 2 and done.output.startswith(f"error: {said}\n  hint: ")
    assert "Missing argument 'CONFIG'" in RUNNER.invoke(app, ["run"]).output
