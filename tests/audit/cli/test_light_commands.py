"""Commands load what they need and do each thing once: counted in modules and calls, which no machine changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.phases import score
from fedaudit.audit.review import review
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.resolve import digest_files, keep, resolve
from fedaudit.fl.datasets.digits import Digits
from fedaudit.reports import charts
from tests.audit.tiny import VERDICTS

TEXT = """
federation:
  dataset: digits
  limit: 200
  clients: 4
  model: small_cnn
  holdout: {auxiliary: 0.3, reference: 0.3}
method: {name: rebafl, rounds: 2, local_epochs: 1}
workers: 0
attacks: [count_recovery]
noise_audit: false
accountants: [exact]
report: [json, html, pdf]
variants: [{name: noisy, protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 1.0}]}]
"""
OUTSIDE = """
federation: {dataset: {name: npz, path: images.npz}, clients: 2, model: logreg, partition: {name: iid}}
method: {name: fedavg, rounds: 1, local_epochs: 1}
attacks: [example_numbers]
workers: 0
report: [json]
"""
# What trains, draws, compiles, accounts for noise or downloads is nothing that these commands do
HEAVY = {"torch", "scipy.stats", "matplotlib", "typst", "dp_accounting", "torchvision", "opacus", "sklearn"}
SHOW, PLAN, RUN = ("show", "quickstart"), ("plan", "c.yaml"), ("run", "c.yaml", "--out", "run")
CHECK, EXPLAIN = ("check", "run"), ("explain", "count_recovery", "--run", "run")
VERIFY = ("verify", "run")
LIGHT = (SHOW, PLAN)
CODE = """
import json, sys
from fedaudit.audit.cli.main import app
for words in json.loads(sys.argv[1]):
    try:
        app(words)
    except SystemExit as end:
        assert end.code in (0, 1, 3), words
    print("imported", *sys.modules, file=sys.stderr)
"""


def execute(folder: Path, *words: str, cache: str = "cache") -> subprocess.CompletedProcess[str]:
    """Run a Python process as a user of that folder would."""
    paths = {"XDG_CACHE_HOME": str(folder / cache), "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(
        [sys.executable, *words], env=os.environ | paths, cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its config that was planned, and a cache that keeps what `show` prints."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "c.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        shown = load(Path(score.__file__).parents[1] / "configs" / "quickstart.yaml")
        keep(shown.model_dump(), resolve(shown))
        assert CliRunner().invoke(app, RUN).exit_code in VERDICTS
        assert CliRunner().invoke(app, ["plan", "c.yaml"]).exit_code == 0  # with what attacks took in the run
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[str, set[str]]:
    """Modules that a process has imported after each command, one after the other."""
    done = execute(folder, "-c", CODE, json.dumps(LIGHT))
    assert done.returncode == 0, done.stderr
    lines = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("imported ")]
    return {words[0]: set(modules) for words, modules in zip(LIGHT, lines, strict=True)}


@pytest.mark.parametrize("command", [words[0] for words in LIGHT])
def test_a_light_command_loads_nothing_that_it_does_not_use(command: str, loaded: dict[str, set[str]]) -> None:
    assert "fedaudit.audit.settings.config" in loaded[command]  # there is something to look at
    assert HEAVY & loaded[command] == set()


def test_the_first_plan_of_a_config_loads_no_renderer(folder: Path) -> None:
    done = execute(folder, "-c", CODE, json.dumps([PLAN]), cache="first")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("imported ")]
    assert "torch" in line.split() and not {"jinja2", "fedaudit.reports.renderers.pdf"} & set(line.split())


def test_a_process_that_ends_at_once_loses_nothing(folder: Path) -> None:
    """It takes no modules apart; what was printed, the status and what runs at exit stay."""
    code = (
        "import atexit, sys\nfrom fedaudit.audit.cli.main import main\n"
        "atexit.register(lambda: print('at exit'))\nsys.argv = ['fedaudit', *sys.argv[1:]]\nmain()"
    )
    shown = execute(folder, "-c", code, "show", "quickstart")
    plain = CliRunner().invoke(app, ["show", "quickstart"])
    assert shown.returncode == 0 and shown.stdout.startswith(plain.output + "at exit\n")
    wrong = execute(folder, "-c", code, "plan", "nothing.yaml")
    assert wrong.returncode == 2 and "nothing.yaml" in wrong.stderr and "at exit" in wrong.stdout


@pytest.mark.parametrize(
    ("dataset", "more"),
    [
        ({"name": "npz", "path": "mine"}, {}),
        ({"name": "fashion_mnist", "path": "mine"}, {}),
        ({"name": "cifar10", "path": "mine"}, {}),
        ({"name": "jsonl", "path": "texts.jsonl", "tokenizer": "mine"}, {}),
        ("digits", {"policy": "./mine"}),
        ("notes", {"federation": {"model": {"name": "hf", "path": "mine"}}}),
    ],
)
def test_a_plan_follows_from_every_file_that_the_config_names(
    dataset: object, more: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"federation": {"dataset": dataset, "model": "logreg"}, "method": "fedavg"}
    config = Config.model_validate(merge(settings, more))
    seen = [digest_files(config)]
    for change in (Path("mine").mkdir, Path("mine/a").touch, lambda: Path("mine/a").write_text("b")):
        change()
        seen.append(digest_files(config))
    assert len(set(seen)) == 4 and all(seen)


def test_nobody_can_say_what_the_code_of_others_reads() -> None:
    for dataset, is_known in (("digits", True), ("mydata:Mine", False)):
        federation = {"dataset": dataset, "model": "logreg"}
        config = Config.model_validate({"federation": federation, "method": "fedavg"})
        assert bool(digest_files(config)) == is_known


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run whose images lie beside it in a file."""
    folder = tmp_path_factory.mktemp("outside")
    x, y = np.random.default_rng(0).random((40, 1, 6, 6), np.float32), np.arange(40) % 2
    np.savez(folder / "images.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    (folder / "c.yaml").write_text(OUTSIDE)
    assert execute(folder, "-m", "fedaudit", *RUN).returncode in VERDICTS
    return folder


def change_a_pixel(file: Path) -> None:
    arrays = dict(np.load(file))
    arrays["x_train"][0, 0, 0, 0] /= 2
    np.savez(file, **arrays)


def test_data_that_changed_since_are_noticed(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(outside)
    words = [*CHECK, "--data", "npz=images.npz"]
    assert CliRunner().invoke(app, words).exit_code in VERDICTS
    change_a_pixel(outside / "images.npz")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "is not what this run was trained on" in done.output, done.output


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
    count(score.Scoring, "derive_whole")
    count(charts, "svg")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in VERDICTS, done.output
    assert counts.pop("load") == 1 and counts.pop("derive_whole") == 2  # of the run and of its variant
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
