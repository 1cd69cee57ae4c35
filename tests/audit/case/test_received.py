"""Received folders: plain files within budgets, strict forms, a limited process; nothing hidden is printed."""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedaudit.audit.case.reading import parse, survey
from fedaudit.audit.case.schemas import AttackFile, MetricsLine
from fedaudit.audit.case.truth import example_shape
from fedaudit.audit.cli.app import READERS
from fedaudit.audit.importing.inbox import take_in
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.special_files import refuse_special
from fedaudit.reports.visible import visible
from tests.audit.cli.test_cli import list_commands
from tests.audit.test_bad_input import refused, run_folder
from tests.test_house import MODULES

TARGETS = (
    "config.yaml",
    "phases.json",
    "ledger.jsonl",
    "chain.json",
    "evidence/00-x.json",
    "artifacts/x.safetensors",
)


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(100 << 30)


def bound(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def hard_link(path: Path) -> None:
    (path.parents[2] / "mine").write_bytes(b"{}")
    os.link(path.parents[2] / "mine", path)


def folder_link(path: Path) -> None:
    path.symlink_to("/etc", target_is_directory=True)


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link to a file": (link, "is a link, not a file"),
    "a link to a folder": (folder_link, "is a link, not a file"),
    "another name of somebody's file": (hard_link, "is a hard link: the same file has 2 names"),
    "a pipe": (os.mkfifo, "is a pipe, not a file"),
    "a socket": (bound, "is a socket, not a file"),
    "100 GiB of nothing": (sparse, "bytes, and at most"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("strange", STRANGE)
def test_what_is_no_plain_file_is_refused_wherever_it_lies(strange: str, tmp_path: Path) -> None:
    make, phrase = STRANGE[strange]
    folder = run_folder(tmp_path)
    for target in TARGETS:
        path = folder / target
        path.parent.mkdir(exist_ok=True)
        kept = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        make(path)
        for command in (
            "run --phase attack",
            "run --phase score",
            "run --phase report",
            "check",
            "verify",
            "dp budget",
        ):
            refused([*command.split(), str(folder)], phrase)
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)


def test_an_inbox_of_hard_links_is_refused_and_examples_may_be_hard_links(tmp_path: Path) -> None:
    inbox, truth = tmp_path / "inbox", tmp_path / "truth"
    Inbox(inbox).message(
        0, "uplink", "client/0", ["server"], {"local_model": {"w": np.zeros((2, 3), np.float32)}}
    )
    truth.mkdir()
    np.savez(tmp_path / "mine.npz", x=np.zeros((2, 1, 4, 4), np.float32), y=np.zeros(2, np.int64))
    os.link(tmp_path / "mine.npz", truth / "client-0.npz")
    refuse_special(truth)  # as a data set's files are looked at
    assert example_shape(truth) == [1, 4, 4] and take_in(inbox, tmp_path / "out").messages == 1
    copied = shutil.copytree(inbox, tmp_path / "snapshot", copy_function=os.link)
    with pytest.raises(UserError, match="is a hard link"):
        take_in(copied, tmp_path / "out")
    assert take_in(Path(shutil.copytree(copied, tmp_path / "copy")), tmp_path / "new").messages == 1


def test_a_run_is_not_written_into_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    shutil.rmtree(folder / "artifacts", ignore_errors=True)
    (tmp_path / "mine").mkdir()
    (folder / "artifacts").symlink_to(tmp_path / "mine")
    refused(
        ["run", str(folder / "config.yaml"), "--out", str(folder), "--trust-plugins"],
        "artifacts is a link, not a file",
    )
    assert not list((tmp_path / "mine").iterdir())


def test_a_folder_that_is_too_deep_or_too_full_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "/".join("abcdefghijklmno")).mkdir(parents=True)
    with pytest.raises(UserError, match="folders 13 deep"):
        survey(tmp_path)
    monkeypatch.setattr("fedaudit.audit.case.reading.MOST_FILES", 3)
    with pytest.raises(UserError, match="more than 3 files"):
        survey(tmp_path)


GOOD = {
    "name": "x",
    "card": {
        "title": "X",
        "source": "",
        "aim": "membership",
        "threat": {"position": "server", "knows": []},
        "reads": [],
    },
    "observer": "server",
    "status": "ran",
    "reason": "",
    **{key: [] for key in ("assertions", "evidence", "people", "galleries", "texts", "curves", "read")},
    "remedy": "",
    "rounds": {},
    "seconds": 1.0,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "won"},
        {"seconds": "1"},
        {"seconds": float("nan")},
        {"evidence": [{"measure": "auc"}]},
        {"galleries": [{"title": "", "caption": "", "columns": [], "rows": []}]},
        {"more": 1},
        {"card": {}},
        {"people": None},
    ],
)
def test_evidence_of_another_form_is_refused_by_its_key(wrong: dict[str, object]) -> None:
    parse(json.dumps(GOOD).encode(), AttackFile, "here")
    with pytest.raises(UserError, match=rf"here is damaged: {next(iter(wrong))}"):
        parse(json.dumps(GOOD | wrong).encode(), AttackFile, "here")


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", '{"round": -1}', '{"round": "0"}', "[" * 100_000, '{"round": 0, ']
)
def test_a_line_of_metrics_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="here is damaged"):
        parse(text.encode(), MetricsLine, "here")


# Limits -------------------------------------------------------------------------------------

USES = """
import sys
from fedaudit.audit.cli.box import Access
from fedaudit.audit.cli.confine import choose_limits, confine
confine(Access(), choose_limits(works=False))
{}
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("act", "settings", "code", "phrase"),
    [
        ("pass", {}, 1, ""),
        ("import time; time.sleep(60)", {"FEDAUDIT_SECONDS": "1"}, 2, "stopped by SIGKILL"),
        ("import os; os.abort()", {}, 2, "stopped by SIGABRT"),
        ("bytearray(3 << 30)", {"FEDAUDIT_MEMORY": "2"}, 1, "MemoryError"),
    ],
)
def test_a_reader_has_little_memory_and_time(act: str, settings: dict[str, str], code: int, phrase: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES.format(act)], capture_output=True, text=True, env={**os.environ, **settings}
    )
    assert done.returncode == code and phrase in done.stderr, done.stderr


UNCONFINED = {"tools list", "tools recorder", "tools trust"}  # they read nothing


def test_every_command_is_confined_or_reads_nothing_that_others_wrote() -> None:
    assert set(list_commands()) - READERS.keys() == UNCONFINED


@pytest.mark.nightly
def test_the_commands_that_read_a_folder_are_limited(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "fedaudit.audit.cli.main",
        "check",
        str(run_folder(tmp_path)),
        "--trust-plugins",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "FEDAUDIT_MEMORY": "1"})
    assert done.returncode == 2 and "Traceback" not in done.stderr and "hint: " in done.stderr, done.stderr


# What is printed ----------------------------------------------------------------------------


def test_signs_that_hide_something_are_named() -> None:
    assert visible({"a\x1b[2J": ["b\u202ec\r", ("ok\n\t é 漢 \u200d",)]}) == {
        "a[U+001B][2J": ["b[U+202E]c[U+000D]", ("ok\n\t é 漢 \u200d",)]
    }


def test_the_command_line_prints_through_one_function() -> None:
    found = []
    for module, path in MODULES.items():
        if module.startswith("fedaudit.audit.cli.") and module != "fedaudit.audit.cli.app":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "print",
                    "typer.echo",
                    "typer.secho",
                ):
                    found.append(f"{module} {ast.unparse(node)}")
    assert found == [
        "fedaudit.audit.cli.cards print('\\n'.join((line for e in found for line in (*card(e, _margin(found), "
        "width, bold=is_bold), ''))))"
    ]  # our own cards, in bold


def test_an_error_cannot_overwrite_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text('federation: {dataset: digits}\nmethod: "fed\\e[2Javg\u202e"\n')
    done = subprocess.run(
        [sys.executable, "-m", "fedaudit", "show", str(tmp_path / "c.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 2 and not re.search("[\x1b\u202e]", done.stderr), done.stderr


@pytest.mark.nightly
def test_nothing_of_ours_changes_pythons_path() -> None:
    touched = []
    for module, path in MODULES.items():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        # a loop reads it and changes nothing
        listed = [node.iter for node in nodes if isinstance(node, ast.comprehension | ast.For)]
        touched += [
            f"{module}:{node.lineno}"
            for node in nodes
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.path", "site.addsitedir")
            if node not in listed
        ]
    assert touched == []
