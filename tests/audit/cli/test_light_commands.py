"""Commands load what they need and do each thing once: counted in modules and calls, which no machine changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.gate import Reviewer, judge_folder
from fedaudit.audit.cli.main import app
from fedaudit.audit.phases import review, score
from fedaudit.audit.settings.config import load
from fedaudit.audit.settings.resolve import keep, resolve
from fedaudit.fl.datasets.digits import Digits
from fedaudit.reports import charts
from tests.audit.tiny import VERDICTS

TEXT = """
federation:
  dataset: digits
  train_limit: 200
  clients: 4
  model: small_cnn
  holdout: {auxiliary: 0.3, reference: 0.3}
method: {name: rebafl, rounds: 2, local_epochs: 1}
workers: 0
attacks: [count_recovery]
report: [json, html, pdf]
"""
# What draws, compiles, accounts for noise or downloads is nothing that these commands do
HEAVY = {
    "torch._C",  # torch itself; a light process has stand-ins called torch
    "scipy.stats",
    "matplotlib",
    "typst",
    "dp_accounting",
    "torchvision",
    "opacus",
    "sklearn",
}
SHOW, PLAN, RUN = ("show", "quickstart"), ("plan", "c.yaml"), ("run", "run")
CHECK, EXPLAIN = ("check", "run"), ("explain", "count_recovery", "--run", "run")
VERIFY = ("verify", "run")
LIGHT = (SHOW, PLAN, EXPLAIN, CHECK, RUN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config, a finished run of it, and a cache that keeps what `show quickstart` prints."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "c.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        shown = load(Path(score.__file__).parents[1] / "configs" / "quickstart.yaml")
        keep(shown, resolve(shown))
        assert CliRunner().invoke(app, ["plan", "c.yaml"]).exit_code == 0
        assert CliRunner().invoke(app, ["run", "c.yaml", "--out", "run"]).exit_code in VERDICTS
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[str, set[str]]:
    """Modules that a process has imported after each command, one after the other."""
    code = (
        "import json, sys\nfrom fedaudit.fl.runtime import light\nsys.meta_path.insert(0, light.Finder())\n"
        "from fedaudit.audit.cli.main import app\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    try:\n        app(words)\n"
        "    except SystemExit as end:\n        assert end.code in (0, 1, 3), words\n"
        "    print('imported', *sys.modules, file=sys.stderr)"
    )
    paths = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(LIGHT)],
        env=os.environ | paths,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("imported ")]
    return {words[0]: set(modules) for words, modules in zip(LIGHT, lines, strict=True)}


@pytest.mark.parametrize("command", [words[0] for words in LIGHT])
def test_a_light_command_loads_nothing_that_it_does_not_use(command: str, loaded: dict[str, set[str]]) -> None:
    assert "fedaudit.audit.settings.config" in loaded[command]  # there is something to look at
    assert HEAVY & loaded[command] == set()


def test_a_config_that_was_shown_is_shown_without_torch(loaded: dict[str, set[str]]) -> None:
    assert {"torch", "scipy", "sklearn"} & loaded["show"] == set()


@pytest.mark.nightly
def test_a_verdict_without_torch_is_the_verdict_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    code = (
        "import sys\nfrom pathlib import Path\nfrom fedaudit.fl.runtime import light\n"
        "sys.meta_path.insert(0, light.Finder())\nfrom fedaudit.audit.cli.gate import Reviewer, judge_folder\n"
        "print(judge_folder(Path('run'), Reviewer()).result.model_dump_json())\n"
        "assert not light.is_torch_loaded()"
    )
    paths = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | paths, capture_output=True, text=True, check=True
    )
    light = json.loads(done.stdout)
    whole = json.loads(judge_folder(Path("run"), Reviewer()).result.model_dump_json())
    assert light.pop("created") and whole.pop("created")
    assert light == whole


@pytest.mark.nightly
def test_a_folder_that_is_not_known_here_is_read_with_torch_and_says_the_same(folder: Path) -> None:
    said, paths = [], {"PYTHONPATH": str(Path(__file__).parents[3])}
    for cache in ("cache", "none"):
        done = subprocess.run(
            [sys.executable, "-m", "fedaudit", *CHECK],
            env=os.environ | paths | {"XDG_CACHE_HOME": str(folder / cache)},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode in VERDICTS, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]


@pytest.mark.parametrize("words", [EXPLAIN, CHECK, VERIFY], ids=lambda words: words[0])
def test_a_review_derives_once_reads_the_data_once_and_draws_only_to_verify(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"load": 0, "derive_whole": 0, "svg": 0}

    def count(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*args: object, **options: object) -> object:
            counts[name] += 1
            return real(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(Digits, "load")
    count(score, "derive_whole")
    count(charts, "svg")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in VERDICTS, done.output
    assert counts.pop("load") == 1 and counts.pop("derive_whole") == 1
    assert bool(counts["svg"]) == (words == VERIFY)


def test_another_policy_is_judged_by_beside_the_folders_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's audit.json is confirmed under its own policy, and the verdict given is the reviewer's."""
    default = Path(review.__file__).parents[1] / "policy" / "default.yaml"
    (folder / "mine.yaml").write_text(default.read_text().replace("name: default", "name: mine"))
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, [*CHECK, "--policy", "mine.yaml"])
    assert done.exit_code in VERDICTS, done.output
    assert "policy: mine, " in done.stdout and "the folder's own verdict is by policy default" in done.stdout
