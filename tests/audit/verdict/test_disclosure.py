"""What an audit shows of people: nothing of private data unless it is asked for, and then apart."""

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir, list_files_of_people
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.score import Scoring
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import load
from fedaudit.audit.verdict.disclosure import DRAWN, Show, withhold
from fedaudit.reports.imported import CheckedStatement, ImportRecord
from fedaudit.reports.result import AuditResult

RUNNER = CliRunner()
CONFIG = """
federation: {{dataset: {dataset}, limit: [200, 40], clients: 4, model: logreg,
             holdout: {{auxiliary: 0.3, reference: 0.2}}}}
method: {{name: fedavg, rounds: 1, local_epochs: 1, batch_size: 8, lr: 0.2}}
attacks: [{{name: analytic}}]
workers: 0
report: {report}
"""
Made = tuple[RunDir, Path]
FORMATS = "[json, html, pdf, sarif, markdown, junit]"


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Made]:
    folder = tmp_path_factory.mktemp("disclosure")
    x, y = np.random.default_rng(0).random((300, 1, 8, 8), np.float32), np.arange(300) % 10
    np.savez(folder / "d.npz", x_train=x[:250], y_train=y[:250], x_test=x[250:], y_test=y[250:])

    def made(dataset: str, report: str) -> Made:
        text = CONFIG.format(dataset=dataset.replace("FILE", str(folder / "d.npz")), report=report)
        (folder / "c.yaml").write_text(text)
        run = RunDir.create(folder / f"run{len(list(folder.iterdir()))}")
        config = load(folder / "c.yaml")
        execute(run, config, [p.name for p in phases(config.case)], lambda *_: None, skip_finished=True)
        return run, folder / "d.npz"

    return made


@pytest.fixture(scope="module")
def private(make: Callable[[str, str], Made]) -> Made:
    return make("{name: npz, path: FILE}", FORMATS)


@pytest.fixture(scope="module")
def whole(private: Made) -> AuditResult:
    run, data = private
    config = run.load_config(data={"npz": data})
    return Scoring(run, config).derive_whole()


def count_pictures(pdf: Path) -> int:
    return sum(len(page.images) for page in PdfReader(pdf).pages)


def test_no_file_that_is_handed_on_shows_a_picture_of_private_data(private: Made, whole: AuditResult) -> None:
    run, _ = private
    pictures = [p for g in whole.galleries for row in g.rows.values() for p in row]
    assert len(pictures) > 10
    assert count_pictures(run.path / "report.pdf") == 0
    for path in {run.audit, *run.path.glob("report.*")} - {run.path / "report.pdf"}:
        text = path.read_text()
        assert not any(p in text for p in pictures), path.name
        assert "iVBORw0KGgo" not in text and "data:image/png" not in text, path.name
    result = read_result(run.path)
    assert sum(w.pictures for w in result.withheld) == len(pictures) and not result.galleries
    assert "withheld" in (run.path / "report.html").read_text()


@pytest.mark.nightly
def test_public_data_are_shown_and_full_shows_all(make: Callable[[str, str], Made]) -> None:
    run, _ = make("digits", "[json]")
    assert read_result(run.path).galleries and not read_result(run.path).withheld
    run, _ = make("{name: npz, path: FILE}", "[json, pdf]\nshow: full")
    assert read_result(run.path).galleries and count_pictures(run.path / "report.pdf") > 0


@pytest.mark.parametrize("show", ["redacted", "reconstructions", "full"])
def test_each_choice_shows_what_it_says(show: Show, whole: AuditResult) -> None:
    rows = {name for g in withhold(whole, show, {}).galleries for name in g.rows}
    every = {name for g in whole.galleries for name in g.rows}
    assert "original (a member)" in every and "reconstruction" in every
    assert rows == {"redacted": set(), "reconstructions": every & set(DRAWN), "full": every}[show]


@pytest.mark.nightly
def test_check_prints_no_picture_even_of_an_owner_who_shows_all(make: Callable[[str, str], Made]) -> None:
    run, data = make("{name: npz, path: FILE}", "[json]\nshow: full")
    for form in ("json", "sarif", "markdown", "junit"):
        done = RUNNER.invoke(app, ["check", str(run.path), "--format", form, "--data", f"npz={data}"])
        assert done.exit_code in (0, 1, 3) and "iVBORw0KGgo" not in done.output, form


def test_a_class_that_is_a_person_is_named_nowhere(
    make: Callable[[str, str], Made], tmp_path: Path, whole: AuditResult
) -> None:
    people = ["Anabel Ruizenga", "Bojan Chenowski"]
    for number in range(200):
        place = tmp_path / people[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    run, _ = make(f"{{name: image_folder, path: {tmp_path}, size: 8}}", FORMATS)
    pdf = "".join(page.extract_text() for page in PdfReader(run.path / "report.pdf").pages)
    files = {run.audit, *run.path.glob("report.*")} - {run.path / "report.pdf"}
    for text in (pdf, *(path.read_text() for path in files)):
        assert len(text) > 500 and not any(part in text for name in people for part in name.split())
    named = whole.model_copy(update={"scope": whole.scope.model_copy(update={"class_names": people})})
    assert withhold(named, "full", {}).scope.class_names == people


def test_names_are_replaced_wherever_others_wrote_them(whole: AuditResult) -> None:
    changed = whole.model_copy(deep=True)
    changed.title = "Audit of ward-3b and ward-3"
    changed.system.controller = "It is ward-3's; not ward-31; 12 of 990001234"
    changed.imported = ImportRecord(
        recorder="flower",
        messages=1,
        bytes=1,
        nodes={"client/0": "ward-3", "client/2": "12"},
        errors=["(ward-3) failed"],
        checks=[CheckedStatement(id="x", title="X", status="declared", text="ward-3b is of ward-3")],
    )
    names = {"ward-3": "client 0", "ward-3b": "client 1", "12": "client 2", "990001234": "client 3"}
    result = withhold(changed, "redacted", names)
    assert result.title == "Audit of client 1 and client 0"
    assert result.system.controller == "It is client 0's; not ward-31; 12 of client 3"
    assert result.imported is not None and result.imported.errors == ["(client 0) failed"]
    assert result.imported.nodes == {"client/0": "client 0", "client/2": "client 2"}
    assert result.imported.checks[0].text == "client 1 is of client 0"
    assert withhold(changed, "full", names) is changed


def test_a_node_cannot_be_called_so_that_the_report_says_something_else(whole: AuditResult) -> None:
    """Its name may be a field, a measure, a number or a word of our sentences."""
    words = ("id", "none", "ready", "attack", "auc", "demonstrated", "membership", "not", "0.5", "critical")
    names = dict.fromkeys(words, "client 0")
    before, after = (withhold(whole, "redacted", n).model_dump() for n in ({}, names))
    assert after == before


def test_a_run_folder_is_the_users_alone(private: Made) -> None:
    run, _ = private
    for path in [run.path, *run.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_every_data_set_says_whose_it_is() -> None:
    said = {name: catalog.load("datasets", name).holds for name in catalog.names("datasets")}
    assert {name for name, holds in said.items() if holds == "private"} == {
        *("csv", "npz", "image_folder", "jsonl", "text_folder")
    }
    assert set(said.values()) <= {"public", "invented", "private"}


def test_shred_removes_what_is_of_people_and_leaves_the_audit(private: Made, tmp_path: Path) -> None:
    import shutil

    run = RunDir(Path(shutil.copytree(private[0].path, tmp_path / "run")))
    done = RUNNER.invoke(app, ["tools", "shred", str(run.path)], input="n\n")
    assert done.exit_code == 0 and "nothing was removed" in done.output and run.artifacts.exists()
    files = list_files_of_people(run.path)
    kept = [path for path in run.path.rglob("*") if path.is_file() and path not in files]
    done = RUNNER.invoke(app, ["tools", "shred", str(run.path)], input="y\n")
    assert done.exit_code == 0, done.output
    assert not list(run.path.rglob("*.safetensors")) and not list(run.evidence.glob("*.json"))
    assert all(path.exists() for path in kept) and run.audit in kept and run.chain in kept
    assert AuditResult.model_validate_json(run.audit.read_bytes()).findings
    done = RUNNER.invoke(app, ["explain", "analytic", "--run", str(run.path)])
    assert "Traceback" not in done.output and "unexpected" not in done.output


def test_a_file_is_overwritten_before_it_goes(tmp_path: Path) -> None:
    from fedaudit.fl.runtime import durable

    (tmp_path / "a").write_bytes(b"secret" * 1000)
    with open(tmp_path / "a", "rb") as held:
        durable.overwrite(tmp_path / "a")
        assert not (tmp_path / "a").exists() and held.read() == bytes(6000)
