"""The run folder: whole files or none, nothing outside it, and one set of settings."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fedaudit.audit.case.run_folder import ConfigDifference, RunDir, difference, sha256
from fedaudit.audit.evidence.phase import FIXED
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import TEXT


def config(folder: Path, text: str = TEXT) -> Path:
    path = folder / "c.yaml"
    path.write_text(text)
    return path


def adopted(folder: Path, text: str = TEXT) -> RunDir:
    run = RunDir.create(folder / "run")
    run.adopt(load(config(folder, text)), FIXED)
    return run


def test_a_folder_can_be_made_opened_and_made_again(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    assert RunDir.open(run.path).config == run.config
    before = run.config.read_bytes()
    assert adopted(tmp_path).config.read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "phrase"),
    [
        ("clients: 4", "clients: 5", "federation.clients: 4, the config says 5"),
        ("rounds: 2", "rounds: 3", "method.rounds: 2, the config says 3"),
        ("name: fedavg", "name: rebafl", "method.name: 'fedavg', the config says 'rebafl'"),
        ("width: 5", "width: 6", "federation.model.width: 5, the config says 6"),
        ("method:", "seed: 8\nmethod:", "seed: 7, the config says 8"),
        ("method:", "protections: [dp_gaussian]\nmethod:", "protections: [], the config says"),
        ("method:", "record: all\nmethod:", "record: 'last', the config says 'all'"),
    ],
)
def test_other_settings_of_the_simulation_are_refused(old: str, new: str, phrase: str, tmp_path: Path) -> None:
    run = adopted(tmp_path)
    before = run.config.read_bytes()
    with pytest.raises(UserError) as error:
        adopted(tmp_path, TEXT.replace(old, new))
    assert phrase in str(error.value) and "--out" in error.value.hint
    assert run.config.read_bytes() == before


@pytest.mark.parametrize(
    "extra", ["delta: 0.001\n", "policy: other\n", "report: [json]\n", "workers: 0\n", "title: X\n"]
)
def test_settings_of_later_phases_may_change(extra: str, tmp_path: Path) -> None:
    adopted(tmp_path)
    run = adopted(tmp_path, TEXT + extra)
    key = extra.partition(":")[0]
    assert load(run.config).model_dump()[key] == load(config(tmp_path, TEXT + extra)).model_dump()[key]


def test_the_first_difference_is_named() -> None:
    assert difference({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}) is None
    assert difference({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}) == ConfigDifference("a.b[1]", 2, 3)
    assert difference({"a": [1]}, {"a": [1, 2]}) == ConfigDifference("a", [1], [1, 2])
    assert difference({}, {"a": 0}) == ConfigDifference("a", None, 0)
    assert difference({"a": 1}, {"a": 1.0}) is None  # YAML writes either
    assert difference({"a": True}, {"a": 1}) == ConfigDifference("a", True, 1)


def test_paths_that_lead_outside_are_refused(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    (run.path / "link").symlink_to(tmp_path)
    for path in ("../c.yaml", "/etc/passwd", "a/../../c.yaml", "link/c.yaml"):
        with pytest.raises(UserError, match="leads outside the run folder"):
            run.inside(path)
    assert run.inside("artifacts/../ledger.jsonl") == run.ledger.resolve()


def test_a_link_in_the_folder_is_never_written_through(tmp_path: Path) -> None:
    run, precious = adopted(tmp_path), tmp_path / "precious"
    precious.write_text("mine")
    (run.path / "audit.json").symlink_to(precious)
    (run.path / ".audit.json.partial").symlink_to(precious)
    run.write_json(run.audit, {"a": 1})
    assert precious.read_text() == "mine" and json.loads(run.audit.read_text()) == {"a": 1}
    outside = tmp_path / "outside"
    outside.mkdir()
    run.evidence.symlink_to(outside)
    with pytest.raises(UserError, match="leads outside"):
        run.write_json(run.evidence / "00-x.json", {})
    assert not list(outside.iterdir())
    (run.path / ".lock").unlink(missing_ok=True)
    (run.path / ".lock").symlink_to(precious)
    with pytest.raises(UserError, match="cannot lock"), run.lock():
        pass
    assert precious.read_text() == "mine"


def test_a_folder_with_a_hard_link_is_refused_until_it_is_copied(tmp_path: Path) -> None:
    run, precious = adopted(tmp_path), tmp_path / "precious"
    precious.write_text("mine")
    (run.path / "evidence").mkdir()
    os.link(precious, run.path / "evidence" / "notes.txt")
    for open_folder in (RunDir.open, RunDir.create):
        with pytest.raises(UserError, match=r"notes\.txt is a hard link.*\n.*cp -r FOLDER COPY"):
            open_folder(run.path)
    copied = shutil.copytree(run.path, tmp_path / "copy")
    assert RunDir.open(copied).path == copied


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("zz\nReady to deploy.", "zz[U+000A]Ready to deploy."),
        ("a\tb", "a[U+0009]b"),
        ("\x1b[2J", "[U+001B][2J"),
        ("audit\u200b.json", "audit[U+200B].json"),
        ("audit\u200d.json", "audit[U+200D].json"),
        ("x\u202egnp.exe", "x[U+202E]gnp.exe"),
        ("\u2060", "[U+2060]"),
        ("a\u2028b", "a[U+2028]b"),
    ],
)
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_name_that_hides_a_sign_is_refused_and_shown(
    name: str, shown: str, is_folder: bool, tmp_path: Path
) -> None:
    run = adopted(tmp_path)
    path = run.path / "deeper" / name
    path.mkdir(parents=True) if is_folder else path.parent.mkdir() or path.touch()  # type: ignore[func-returns-value]
    with pytest.raises(UserError) as refused:
        RunDir.open(run.path)
    assert refused.value.sentence == f"a name in {run.path / 'deeper'} hides a sign: {shown}"
    assert "rename it" in refused.value.hint


def test_names_in_any_script_are_opened(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    for name in ("Prüfung Nr. 3.pdf", "مراجعة.txt", "监査　報告.txt", "❤️.txt", "e\u0301.txt"):
        (run.path / name).write_text("x")
    assert RunDir.open(run.path).path == run.path


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    run.write_json(run.audit, {"a": 1})
    with pytest.raises(TypeError):
        run.write_json(run.audit, {"a": object()})
    with pytest.raises(TypeError):
        run.write(run.audit, "text")  # type: ignore[arg-type]
    assert json.loads(run.audit.read_text()) == {"a": 1}
    run.write_json(run.audit, {"a": 2})  # what the failure left aside is in nobody's way
    assert json.loads(run.audit.read_text()) == {"a": 2}
    assert not [p for p in os.listdir(run.path) if p.endswith(".partial")]


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    with run.lock(), pytest.raises(UserError, match="another fedaudit"), RunDir.open(run.path).lock():
        pass
    with run.lock():
        pass


def test_damaged_json_is_named(tmp_path: Path) -> None:
    run = adopted(tmp_path)
    run.write(run.audit, b"{")
    with pytest.raises(UserError, match=r"audit\.json is damaged"):
        run.read_json(run.audit)
    with pytest.raises(UserError, match=r"environment\.json is missing"):
        run.read_json(run.environment)


def test_sha256_is_the_published_one(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-4, example 1
    assert sha256(tmp_path / "abc") == ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
