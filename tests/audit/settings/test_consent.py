"""Consent: code beside any config runs after its user's word, in every command, whatever its folder holds."""

import os
import pty
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import fedaudit as fa
from fedaudit.audit.cli.main import app
from fedaudit.audit.experiments import sweep
from fedaudit.audit.experiments.cells import list_cells
from fedaudit.audit.settings import consent
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError
from tests.audit.test_bad_input import run_folder

RUNNER = CliRunner()
PLAIN: dict[str, Any] = {
    "federation": {"dataset": "digits", "clients": 4, "model": "logreg"},
    "method": {"name": "theirs:Method", "rounds": 1},
    "workers": 0,
}
CODE = "from fedaudit.fl.methods.fedavg import FedAvg\nopen({mark!r}, 'w').close()\nclass Method(FedAvg): ...\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user who agreed to nothing yet, in a folder of nobody."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(consent, "_agreed", set())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in ("theirs", "tests_pack")]:
        del sys.modules[name]


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that their code makes."""
    return tmp_path / "it-ran"


@pytest.fixture
def folder(tmp_path: Path, mark: Path) -> Path:
    """A folder that somebody sent: a config and code beside it."""
    made = tmp_path / "received"
    made.mkdir()
    (made / "config.yaml").write_text(yaml.safe_dump(PLAIN))
    (made / "theirs.py").write_text(CODE.format(mark=str(mark)))
    return made


def make_run_folder(folder: Path, tmp_path: Path) -> None:
    """What a finished run leaves, around that config."""
    made = run_folder(tmp_path)
    for path in made.iterdir():
        if path.name not in ("config.yaml", "theirs.py"):
            path.rename(folder / path.name)


OF_CONFIGS = (
    ["show"],
    ["plan"],
    ["run", "--out", "o"],
    ["run", "--phase", "simulate", "--out", "o"],
    ["harden", "--out", "o"],
)


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("command", OF_CONFIGS, ids=lambda c: " ".join(c))
def test_no_config_runs_code_without_a_word_whatever_lies_beside_it(
    command: list[str], has_run: bool, folder: Path, tmp_path: Path, mark: Path
) -> None:
    if has_run:
        make_run_folder(folder, tmp_path)
    done = RUNNER.invoke(app, [command[0], str(folder / "config.yaml"), *command[1:]])
    assert done.exit_code == 2 and f"{folder / 'theirs.py'} would run here" in done.stderr, done.output
    line = done.stderr.splitlines()[-1]
    assert line == f"fedaudit tools trust {foreign.digest_code(folder / 'theirs.py')}"
    assert not mark.exists() and "theirs" not in sys.modules


@pytest.mark.parametrize(
    "command", ["run", *(f"run --phase {name}" for name in ("attack", "account", "score", "report"))]
)
def test_no_folder_runs_code_without_a_word(command: str, folder: Path, tmp_path: Path, mark: Path) -> None:
    make_run_folder(folder, tmp_path)
    done = RUNNER.invoke(app, [*command.split(), str(folder)])
    assert done.exit_code == 2 and "fedaudit tools trust" in done.stderr and not mark.exists(), done.output


def test_a_line_that_was_pasted_holds_for_that_code_in_every_command_and_place(
    folder: Path, tmp_path: Path, mark: Path
) -> None:
    first = RUNNER.invoke(app, ["show", str(folder / "config.yaml")])
    words = first.stderr.splitlines()[-1].split()[1:]
    kept = RUNNER.invoke(app, words)
    assert kept.exit_code == 0 and not mark.exists()
    other = Path(shutil.copytree(folder, tmp_path / "copy"))
    for config in (folder, other):
        assert RUNNER.invoke(app, ["show", str(config / "config.yaml")]).exit_code == 0
    assert mark.exists()
    mark.unlink()
    sys.modules.pop("theirs")  # another process
    (other / "theirs.py").write_text((other / "theirs.py").read_text() + "\n# another version\n")
    assert RUNNER.invoke(app, ["show", str(other / "config.yaml")]).exit_code == 2 and not mark.exists()
    Path(kept.stdout.partition("remove ")[2].partition(" to take")[0]).unlink()
    consent._agreed.clear()  # another process
    assert RUNNER.invoke(app, ["show", str(folder / "config.yaml")]).exit_code == 2 and not mark.exists()


def test_python_asks_for_files_and_not_for_what_a_program_hands_over(folder: Path, mark: Path) -> None:
    with pytest.raises(UserError, match="would run here") as told:
        fa.run(folder / "config.yaml", out=folder / "out")
    assert "trust_plugins=True" in str(told.value) and "fedaudit tools trust" in str(told.value)
    for ask in (fa.harden, fa.robustness):
        with pytest.raises(UserError, match="would run here"):
            ask(folder / "config.yaml")
    assert not mark.exists()


def test_a_notebook_started_inside_the_folder_is_asked_too(
    folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's path has the folder where a notebook is started: that does not make its files installed."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(UserError, match="would run here"):
        fa.run("config.yaml")
    assert not mark.exists()
    import theirs  # type: ignore[import-not-found]  # the program's own import is a word

    assert mark.exists() and theirs.Method
    assert RUNNER.invoke(app, ["show", "config.yaml"]).exit_code == 0


def test_a_compiled_copy_beside_the_source_is_never_what_runs(
    folder: Path, tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    source = folder / "theirs.py"
    other = tmp_path / "other.py"
    other.write_text(CODE.format(mark=str(tmp_path / "hidden")))
    place = Path(cache_from_source(str(source)))
    place.parent.mkdir()
    state = source.stat()
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    for mode in (py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.TIMESTAMP):
        py_compile.compile(str(other), cfile=str(place), invalidation_mode=mode)
        consent.keep(foreign.digest_code(source), "test")
        sys.modules.pop("theirs", None)
        assert RUNNER.invoke(app, ["show", str(folder / "config.yaml")]).exit_code == 0
        assert mark.exists() and not (tmp_path / "hidden").exists()


def test_a_package_is_agreed_to_with_all_its_files(tmp_path: Path, folder: Path, mark: Path) -> None:
    package = folder / "tests_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(CODE.format(mark=str(mark)))
    config = PLAIN | {"method": {"name": "tests_pack.inner:Method", "rounds": 1}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    told = RUNNER.invoke(app, ["show", str(folder / "config.yaml")])
    assert told.exit_code == 2 and not mark.exists()
    assert RUNNER.invoke(app, told.stderr.splitlines()[-1].split()[1:]).exit_code == 0
    (package / "inner.py").write_text(CODE.format(mark=str(tmp_path / "changed")))
    assert RUNNER.invoke(app, ["show", str(folder / "config.yaml")]).exit_code == 2
    (package / "inner.py").write_text(CODE.format(mark=str(mark)))
    assert RUNNER.invoke(app, ["show", str(folder / "config.yaml")]).exit_code == 0 and mark.exists()
    assert not (package / "__pycache__").exists() or not list((package / "__pycache__").iterdir())


@pytest.mark.parametrize("text", ["", "0" * 63, "g" * 64, "../" + "0" * 61, "0" * 64 + "\n"])
def test_what_is_no_digest_is_refused(text: str) -> None:
    done = RUNNER.invoke(app, ["tools", "trust", text])
    assert done.exit_code == 2 and "is no SHA-256 digest" in done.stderr


def test_downloads_are_agreed_to_alike(tmp_path: Path) -> None:
    with pytest.raises(consent.UnconsentedError, match="would download mnist into") as told:
        consent.require_download("mnist", tmp_path, "federation.dataset")
    consent.keep(told.value.digest, "test")
    consent.require_download("mnist", tmp_path, "federation.dataset")
    with pytest.raises(consent.UnconsentedError):
        consent.require_download("mnist", tmp_path / "elsewhere", "federation.dataset")


def test_a_terminal_asks_once_and_a_pipe_never(folder: Path, tmp_path: Path) -> None:
    """In a process of its own, confined, at a pseudo-terminal."""
    (folder / "theirs.py").write_text(CODE.format(mark=os.devnull) + "print('IT RAN')\n")
    command = [sys.executable, "-m", "fedaudit", "plan", str(folder / "config.yaml")]
    said = []
    for answer in (b"n\n", b"y\n", None):
        master, slave = pty.openpty()
        if answer:
            os.write(master, answer)
        running = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path)
        os.close(slave)
        text = b""
        while True:
            try:
                more = os.read(master, 4096)
            except OSError:
                break
            if not more:
                break
            text += more
        os.close(master)
        said.append((running.wait(timeout=120), text.decode()))
        assert ("You have read it" in said[-1][1]) == (answer is not None), said[-1]
        assert ("IT RAN" in said[-1][1]) == (answer != b"n\n"), said[-1]
    assert [code for code, _ in said] == [2, 0, 0]


DOWNLOADING = "federation: {dataset: {name: mnist, download: true}, clients: 2, model: logreg}\nmethod: fedavg\n"


def test_a_config_made_of_a_files_asks_as_the_file_does(tmp_path: Path) -> None:
    """A sweep and a table of attackers change settings of a config, and nobody's word to it."""
    (tmp_path / "c.yaml").write_text(DOWNLOADING)
    for trust in (False, True):
        (cell,) = list_cells(load(tmp_path / "c.yaml", trust=trust), {"a": {"seed": 8}}, tmp_path)
        assert cell.config.origin.file == tmp_path / "c.yaml" and cell.config.origin.trust is trust
    (own,) = list_cells(yaml.safe_load(DOWNLOADING), {"a": {"seed": 8}}, tmp_path)
    assert own.config.origin.trust  # a program's own settings
    with pytest.raises(UserError, match="would download mnist"):
        fa.robustness(tmp_path / "c.yaml", out=tmp_path / "out")


@pytest.mark.parametrize("given", [[], ["--trust-plugins"]])
def test_a_sweep_asks_once_for_what_it_was_told_to_trust(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text(DOWNLOADING)
    asked = []
    monkeypatch.setattr(
        sweep, "run_sweep", lambda base, *_, **__: asked.append(list_cells(base, {"a": {}}, tmp_path))
    )
    RUNNER.invoke(app, ["sweep", str(tmp_path / "c.yaml"), "--method", "fedavg", "--seeds", "1", *given])
    ((cell,),) = asked
    assert cell.config.origin.trust is bool(given)
