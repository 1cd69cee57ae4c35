"""Forty ways and more to make a folder that says what is not so: which commands refuse each, what others say.

The ways are those of tests/audit/attestation/forger.py, whose table README and SECURITY.md do not repeat.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.audit.attestation.forger import (
    CHECK,
    COMMANDS,
    KEY,
    REPLAY,
    VERIFY,
    WAYS,
    make_key,
    make_run,
    review,
    seal,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A finished run, the same run sealed, and the sealer's public key."""
    root = tmp_path_factory.mktemp("forger")
    original, key = make_run(root), make_key(root)
    shutil.copytree(original, root / "sealed")
    seal(root / "sealed", key)
    return {"original": original, "sealed": root / "sealed", "key": key}


@pytest.mark.parametrize(
    "command", [pytest.param(c, marks=pytest.mark.nightly if c == REPLAY else ()) for c in COMMANDS]
)
def test_the_untouched_run_passes_every_command(command: str, folders: Mapping[str, Path]) -> None:
    done = review(command, folders["sealed" if command == KEY else "original"], folders["key"])
    assert done.exit_code in (0, 1, 3), done.output


@pytest.mark.dear("planted leaks-key", "no images of evidence-key")
@pytest.mark.sample(5)
@pytest.mark.parametrize("command", [CHECK, VERIFY, KEY])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_forger_changes_is_refused_or_not_vouched_for(
    way: str, command: str, folders: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(way, command, folders, tmp_path, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_a_replay_refuses_what_no_attack_gives(
    way: str, folders: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt(way, REPLAY, folders, tmp_path, monkeypatch)


def attempt(
    way: str, command: str, folders: Mapping[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders["sealed" if command == KEY else "original"], folder / "run")
    monkeypatch.chdir(folder)
    WAYS[way].forge(folder / "run")
    done = review(command, folder / "run", folders["key"])
    if command in WAYS[way].passes:
        assert done.exit_code in (0, 1, 3), done.output
        assert command == REPLAY or WAYS[way].says in done.stdout, done.output
    else:
        assert done.exit_code == 2, done.output
        assert done.stderr.count("error: ") == 1 and "hint: " in done.stderr and "unexpected" not in done.stderr
