"""Some hundred ways to make a folder that says what is not so: which commands refuse each, what others say.

The ways are those of forger.py, ways_below.py, odd_ways.py and foreign_ways.py, whose tables README and
SECURITY.md do not repeat. Behind them stands a property: whatever field of whatever file is changed, removed or
emptied, a replay names it, or it is one of those that are printed as stated by the owner.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.gate import Reviewer, judge_folder
from fedaudit.audit.review.compare_folders import DERIVED, STATED, compare_folders
from fedaudit.audit.review.replay import RunReplay
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from tests.audit.attestation import foreign_ways, odd_ways, ways_below
from tests.audit.attestation.forger import (
    CHECK,
    COMMANDS,
    KEY,
    OTHER,
    REPLAY,
    TAKEN,
    UNDRAWN,
    VERIFY,
    WAYS,
    make_key,
    make_run,
    review,
    seal,
)

Path_ = tuple[Any, ...]  # keys and numbers that lead to a value
TABLES = {
    "run": (WAYS | ways_below.FURTHER | odd_ways.ODD | foreign_ways.FOREIGN, make_run),
    "cells": (ways_below.OF_CELLS | foreign_ways.FOREIGN_CELLS, ways_below.make_cells),
    "absence": (ways_below.OF_ABSENCE, ways_below.make_absence),
    "recorded": (ways_below.RECORDED | foreign_ways.FOREIGN_RECORDED, ways_below.make_recorded),
}
CASES = [(table, way) for table, (ways, _) in TABLES.items() for way in ways]
REMADE = [(table, way) for table, way in CASES if not TABLES[table][0][way].resets]


class Folders:
    """Finished runs, each sealed and made again, and the sealer's public key; made where they are asked for."""

    def __init__(self, root: Path) -> None:
        self.root, self.key = root, make_key(root)

    def original(self, table: str) -> Path:
        folder = self.root / table
        return folder / "run" if folder.is_dir() else TABLES[table][1](folder)

    def sealed(self, table: str) -> Path:
        folder = self.root / f"{table}-sealed"
        if not folder.is_dir():
            shutil.copytree(self.original(table), folder)
            seal(folder, self.key)
        return folder

    def again(self, table: str) -> RunDir:
        place = self.root / f"{table}-again"
        if not place.is_dir():
            run = RunDir(self.original(table))
            RunReplay(run.path, place, run.load_config(trust_plugins=True)).make(lambda *_: None)
        return RunDir(place)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("forger"))


def forge(table: str, way: str, source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(source, folder / "run")
    monkeypatch.chdir(folder)
    TABLES[table][0][way].forge(folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=pytest.mark.nightly if c == REPLAY else ()) for c in COMMANDS]
)
def test_the_untouched_run_passes_every_command(command: str, folders: Folders) -> None:
    done = review(command, folders.sealed("run") if command == KEY else folders.original("run"), folders.key)
    assert done.exit_code in (0, 1, 3), done.output


@pytest.mark.dear("run-planted leaks-key", "run-no images of evidence-key")
@pytest.mark.sample(6)
@pytest.mark.parametrize("command", [CHECK, VERIFY, KEY])
@pytest.mark.parametrize(("table", "way"), CASES)
def test_what_a_forger_changes_is_refused_or_not_vouched_for(
    table: str, way: str, command: str, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folders.sealed(table) if command == KEY else folders.original(table)
    attempt(table, way, command, forge(table, way, source, tmp_path, monkeypatch), folders.key)


@pytest.mark.nightly
@pytest.mark.parametrize(("table", "way"), [c for c in CASES if c not in REMADE])
def test_a_replay_makes_the_run_of_the_settings_that_the_folder_states(
    table: str, way: str, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(table, way, REPLAY, forge(table, way, folders.original(table), tmp_path, monkeypatch), folders.key)


def attempt(table: str, way: str, command: str, folder: Path, key: Path) -> None:
    """One command, which must refuse what is forged or say that it does not vouch for it."""
    done, what = review(command, folder, key), TABLES[table][0][way]
    if command in what.passes:
        assert done.exit_code in (0, 1, 3), done.output
        said = OTHER if what.says == UNDRAWN and command != CHECK else what.says
        assert command == REPLAY or said in done.stdout, done.output
    else:
        assert done.exit_code == 2, done.output
        assert done.stderr.count("error: ") == 1 and "hint: " in done.stderr and "unexpected" not in done.stderr


@pytest.mark.sample(8)
@pytest.mark.parametrize(("table", "way"), REMADE)
def test_a_replay_refuses_what_the_run_does_not_give(
    table: str, way: str, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `verify --replay` does; the run is made again once, since its settings are those of the folder."""
    again = folders.again(table)
    folder = forge(table, way, folders.original(table), tmp_path, monkeypatch)
    what = TABLES[table][0][way]
    if REPLAY in what.passes:
        others, lines = replay(folder, again)
        assert what.says != UNDRAWN or others, "no file is named that says something else"
        assert what.says != TAKEN or any("not equal to it in" in line for line in lines)
    else:
        with pytest.raises(UserError):
            replay(folder, again)


def replay(folder: Path, again: RunDir) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Files that are not written so here, and how the folder compares."""
    judged = judge_folder(folder, Reviewer(policy="default", trust=True, render=True))
    replayed = RunReplay(judged.folder.path, again.path, judged.config).conclude(load_policy("default"))
    judged.decide_again(replayed.result, "default")
    replayed.confirm(judged.result)
    return judged.review.others, replayed.lines


# The property


def changed(value: Any) -> Any:
    """Another value of its type; of nothing, something."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return 0.0 if math.isinf(value) else value * 2 + 1
    return f"{value}x" if isinstance(value, str) else "x"


def list_paths(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Every value inside, and every list and object; of alike entries of a list, and of many words, the first."""
    yield at
    if isinstance(value, Mapping):
        is_many = len(value) > 6 and all(isinstance(v, str) for v in value.values())
        for key in list(value)[:1] if is_many else value:
            yield from list_paths(value[key], (*at, key))
    elif isinstance(value, list) and value:
        yield from list_paths(value[0], (*at, 0))


def edited(value: Any, at: Path_, change: Callable[[Any], Any]) -> Any:
    """A copy with the value at one place changed; None: removed."""
    if not at:
        return change(value)
    head, *rest = at
    copy = dict(value) if isinstance(value, Mapping) else list(value)
    made = edited(copy[head], tuple(rest), change)
    if made is None:
        del copy[head]
    else:
        copy[head] = made
    return copy


def list_edits(value: Any) -> Iterator[tuple[Path_, Any]]:
    """Every value changed or removed, every list and object emptied."""
    for at in list_paths(value):
        here = value
        for key in at:
            here = here[key]
        if isinstance(here, Mapping | list):
            if here:
                yield at, edited(value, at, lambda v: type(v)())
        else:
            yield at, edited(value, at, changed)
        if at:
            yield at, edited(value, at, lambda _: None)


def is_stated(name: str, at: Sequence[Any]) -> bool:
    """Whether a field, or what holds it, is printed as stated by the owner."""
    wanted = [key.split(".") for pattern, keys in STATED.items() if fnmatchcase(name, pattern) for key in keys]
    return any(
        len(at) >= len(key) and all(k in ("*", str(part)) for k, part in zip(key, at, strict=False))
        for key in wanted
    )


def list_forgeries(path: Path, name: str) -> Iterator[tuple[Path_, bytes]]:
    """(place, content) of every edit of a file."""
    if name.endswith(".safetensors"):
        arrays = load_arrays(path.read_bytes())
        for key, array in arrays.items():
            other = array.copy()
            other.flat[0] = other.flat[0] * np.asarray(1.001, array.dtype) + np.asarray(1, array.dtype)
            yield (key,), save_arrays(arrays | {key: other})
            break
    elif name.endswith(".jsonl"):
        before = path.read_text().splitlines()
        lines = [json.loads(line) for line in before]
        seen = set[frozenset[str]]()
        for i, line in enumerate(lines):
            if frozenset(line) in seen:
                continue
            seen.add(frozenset(line))
            for at, made in list_edits(line):
                text = [*before[:i], json.dumps(made), *before[i + 1 :]]
                yield (i, *at), ("\n".join(text) + "\n").encode()
        if lines:
            yield (), b""
    elif name.endswith(".py"):
        yield ("code",), path.read_bytes() + b"# another line\n"
    else:
        for at, made in list_edits(json.loads(path.read_text())):
            yield at, json.dumps(made).encode()


def lay_apart(name: str, run: RunDir, again: RunDir, place: Path) -> tuple[Path, Path]:
    """Folders of one file of the run and of the one made again, beside what says which files phases leave."""
    parts = place / "theirs", place / "ours"
    for part, whole in zip(parts, (run, again), strict=True):
        shutil.rmtree(part, ignore_errors=True)
        (part / name).parent.mkdir(parents=True)
        shutil.copy(again.chain, part)
        if (whole.path / name).is_file():
            shutil.copy(whole.path / name, part / name)
    return parts


def is_named(name: str, run: RunDir, theirs: Path, ours: Path) -> bool:
    """Whether a replay names the file that lies apart: in the comparison, or before, in the review of the run."""
    with suppress(UserError):
        found = compare_folders(theirs, ours)
        if found.is_equal and not found.code:
            (run.path / name).unlink()
            if (theirs / name).is_file():
                shutil.copy(theirs / name, run.path / name)
            judge_folder(run.path, Reviewer(policy="default", trust=True))
            return False
    return True


@pytest.mark.parametrize(
    "table", [t if t == "run" else pytest.param(t, marks=pytest.mark.nightly) for t in TABLES]
)
def test_whatever_field_is_changed_removed_or_emptied_a_replay_names_it(
    table: str, folders: Folders, tmp_path: Path
) -> None:
    run, again = RunDir(tmp_path / "run"), folders.again(table)
    shutil.copytree(folders.original(table), run.path)
    unnamed, tried, known = [], 0, set[tuple[Path_, type]]()
    for path in sorted(p for p in run.path.rglob("*") if p.is_file()):
        name = path.relative_to(run.path).as_posix()
        if any(fnmatchcase(name, pattern) or fnmatchcase(path.name, pattern) for pattern in DERIVED):
            continue
        kept, (theirs, ours) = path.read_bytes(), lay_apart(name, run, again, tmp_path)
        # Files of attacks are of one form, and one code compares them: a place that one of them has is enough
        measured = json.loads(kept) if fnmatchcase(name, "evidence/[0-9]*.json") else None
        tried_before = known.copy()
        for at, content in list_forgeries(path, path.name):
            if measured is not None:
                place = at, type(reduce(getitem, at, measured))
                if place in tried_before:
                    continue
                known.add(place)
            tried += 1
            (theirs / name).write_bytes(content)
            own = f"evidence/{path.name}" if path.parent.name == "evidence" else path.name
            if not is_stated(own, at) and not is_named(name, run, theirs, ours):
                unnamed.append(f"{name}: {'.'.join(map(str, at))}")
        (theirs / name).unlink()
        if not is_named(name, run, theirs, ours):
            unnamed.append(f"{name} removed")
        path.write_bytes(kept)
    assert unnamed == []
    assert tried > 300
    assert compare_folders(run.path, again.path).is_equal


def test_fields_that_no_replay_can_say_are_few_and_change_no_verdict(folders: Folders) -> None:
    assert STATED == {
        "phases.json": ("*.started", "*.seconds", "report"),
        "chain.json": ("registrations", "links.*.aside", "links.report"),
        "environment.json": ("hardware",),
        "evidence/[0-9]*.json": ("seconds",),
    }
