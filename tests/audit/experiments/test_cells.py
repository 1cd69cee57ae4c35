"""Cells: each is the run it would be alone, to the last bit, however many run at once and whatever is killed."""

import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaudit.audit.attestation.chain import read_chain
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.experiments.cells import RunCell, combine_failures, list_cells, run_cells
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import SMALL, TinyImages

HERE = __name__
BASE = {
    "federation": SMALL,
    "method": {"name": "rebafl", "rounds": 3, "local_epochs": 1},
    "record": "all",
    "attacks": ["count_recovery", {"name": "prototype_membership", "least_auxiliary": 5}],
    "replay": {"sizes": [1, 5], "clients": 2, "groups": 10},
    "workers": 1,  # which a config keeps, whatever its cell runs with
}
OVERRIDES = {
    "plain": {},
    "fast/lr-0.2": {"method.lr": 0.2, "seed": 8},
    "secure": {"protections": ["secure_aggregation"], "federation.clients": 3},
}
PHASES = ("simulate", "attack", "account")
TIMED = {"phases.json", "environment.json", ".lock"}


class Counted(TinyImages):
    """Says how often it was read."""

    loads = 0

    def load(self) -> Data:
        Counted.loads += 1
        return super().load()


class Fatal(TinyImages):
    """Ends the process that reads it, as the system does to one that takes too much memory."""

    def load(self) -> Data:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


class Absent(TinyImages):
    def load(self) -> Data:
        raise UserError("no file images.bin", hint="fetch it")


class Broken(TinyImages):
    def load(self) -> Data:
        raise ZeroDivisionError("by zero")


def silent(phase: str, done: int, total: int) -> None:
    pass


def contents(root: Path) -> dict[str, bytes]:
    """Every file of what was run, but for how long things took."""
    files = [p for p in root.rglob("*") if p.is_file() and p.name not in TIMED]
    found = {p: re.sub(rb'"seconds": [-.e\d]+', b"", p.read_bytes()) for p in files}
    found |= {p: read_chain(p.parent).content().encode() for p in files if p.name == "chain.json"}
    return {str(p.relative_to(root)): data for p, data in found.items()}


def plan(root: Path) -> list[RunCell]:
    return list_cells(BASE, OVERRIDES, root, PHASES)


def killed_after_one_cell(root: Path, workers: int) -> None:
    def progress(phase: str, done: int, total: int) -> None:
        if phase == "fast/lr-0.2: simulate" and done == total:
            os.kill(os.getpid(), signal.SIGKILL)

    run_cells(plan(root), progress, workers=workers)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every cell run by itself, sharing nothing."""
    root = tmp_path_factory.mktemp("alone")
    for cell in plan(root):
        execute(RunDir.create(cell.folder), cell.config, PHASES, silent, skip_finished=True)
    found = contents(root)
    assert {f"{name}/{kept}" for name in OVERRIDES for kept in ("ledger.jsonl", "evidence/budgets.json")} <= set(
        found
    )
    assert found["plain/metrics.jsonl"] != found["fast/lr-0.2/metrics.jsonl"]
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [None, 1, 2])
def test_every_cell_is_what_it_is_alone(tmp_path: Path, alone: dict[str, bytes], workers: int | None) -> None:
    assert run_cells(plan(tmp_path), silent, workers=workers) == []
    assert contents(tmp_path) == alone


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [0, 2])
def test_a_kill_in_the_middle_changes_nothing(tmp_path: Path, alone: dict[str, bytes], workers: int) -> None:
    process = multiprocessing.get_context("spawn").Process(target=killed_after_one_cell, args=(tmp_path, workers))
    process.start()
    process.join(200)
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "fast/lr-0.2/evidence/budgets.json").exists()
    # the killed command's processes may need a moment to be gone with it: their folders are locked until then
    failures = run_cells(plan(tmp_path), silent, workers=workers)
    assert not [f for f in failures if "another fedaudit" not in f.sentence]
    assert run_cells(plan(tmp_path), silent, workers=workers) == []
    assert contents(tmp_path) == alone


@pytest.mark.nightly
def test_what_is_finished_is_not_run_again_and_what_changed_is_refused(tmp_path: Path) -> None:
    assert run_cells(plan(tmp_path), silent) == []
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    ran: list[str] = []
    assert run_cells(plan(tmp_path), silent, after=lambda cell: ran.append(cell.name)) == []
    assert ran == [] and all(p.stat().st_mtime_ns == t for p, t in before.items())
    changed = list_cells(BASE, OVERRIDES | {"plain": {"seed": 8}}, tmp_path, PHASES)
    [failure] = run_cells(changed, silent)
    assert (failure.name, failure.code) == ("plain", 2) and "seed: 7, the config says 8" in failure.sentence


@pytest.mark.parametrize("workers", [0, 2])
def test_a_cell_that_fails_is_named_and_the_others_go_to_their_end(tmp_path: Path, workers: int) -> None:
    bad = {"absent": "Absent", "broken": "Broken"} | ({"fatal": "Fatal"} if workers else {})
    overrides = {name: {"federation.dataset": f"{HERE}:{cls}"} for name, cls in bad.items()}
    cells = list_cells(BASE, {**overrides, "a": {}, "b": {"seed": 9}}, tmp_path, ("simulate",))
    said: list[tuple[str, int, int]] = []
    ran: list[str] = []
    failures = run_cells(cells, lambda *s: said.append(s), workers=workers, after=lambda c: ran.append(c.name))
    assert [f.name for f in failures] == list(bad)
    assert (failures[0].code, failures[0].sentence, failures[0].hint) == (2, "no file images.bin", "fetch it")
    assert failures[1].code == 1
    assert re.fullmatch(r"unexpected ZeroDivisionError in test_cells.py, line \d+: by zero", failures[1].sentence)
    if workers:
        assert failures[2].code == -9 and "SIGKILL" in failures[2].sentence
    assert sorted(ran) == ["a", "b"] and (tmp_path / "b" / "metrics.jsonl").is_file()
    assert said[0] == ("cells", 0, len(cells)) and ("cells", len(cells), len(cells)) in said
    assert any(s[0] == "a: simulate" for s in said)
    error = combine_failures(failures, len(cells))
    assert str(combine_failures(failures[:1], 1, "variant")).startswith("1 of 1 variant failed: ")
    assert f"{len(bad)} of {len(cells)} cells failed: absent (exit code 2): no file images.bin; " in str(error)


def test_cells_of_one_process_read_the_data_once_and_a_single_run_keeps_nothing(tmp_path: Path) -> None:
    shared = {"a": {}, "b": {"method.lr": 0.3}, "c": {"seed": 8}}
    base = Config.model_validate(BASE | {"federation": {"dataset": f"{HERE}:Counted", "clients": 3}})
    Counted.loads = 0
    assert run_cells(list_cells(base, shared, tmp_path, ("simulate",)), silent) == []
    assert Counted.loads == 1
    assert run_cells(list_cells(base, {"d": {}}, tmp_path, ("simulate",)), silent) == []
    assert Counted.loads == 2


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["../up"], "cell '../up' cannot name a folder"),
        (["/etc"], "cell '/etc' cannot name a folder"),
        (["a//b"], "cell 'a//b' cannot name a folder"),
        ([""], "cell '' cannot name a folder"),
        (["a", "a/b"], "cell a/b would lie inside cell a"),
    ],
)
def test_names_that_cannot_be_folders_are_refused(tmp_path: Path, names: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        list_cells(BASE, {name: {} for name in names}, tmp_path)


def test_an_override_that_cannot_be_names_its_cell(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cell bad: unknown key method\.lrr"):
        list_cells(BASE, {"good": {}, "bad": {"method.lrr": 1}}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_cells_is_nothing_to_do() -> None:
    call: Callable[..., object] = run_cells
    assert call([], silent) == []
