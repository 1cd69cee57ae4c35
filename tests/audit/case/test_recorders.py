"""Recorders for other people's environments: one file, safe when killed, silent towards the training."""

import errno
import fcntl
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedaudit.audit.importing.recorders.files import HOOKS, source
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.fl.recording.recorder import MANIFEST, lines, manifest, read
from fedaudit.fl.runtime.errors import UserError

MODEL = {"head.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}


def recorded(folder: Path, clients: int = 2, rounds: int = 2) -> Inbox:
    inbox = Inbox(folder)
    for t in range(rounds):
        inbox.message(t, "downlink", "server", ["client"], {"global_model": MODEL})
        for k in range(clients):
            kinds = {"local_model": MODEL, "num_examples": {"count": np.int64(5 + k)}}
            inbox.message(t, "uplink", inbox.client(f"node-{k}"), ["server"], kinds)
    return inbox


def test_what_was_recorded_is_read_as_artifacts(tmp_path: Path) -> None:
    recorded(tmp_path)
    found = read(tmp_path)
    assert len(found) == 2 + 2 * 2 * 2
    assert [str(a.sender) for a in found if a.kind == "local_model"] == ["client/0", "client/1"] * 2
    assert all(np.array_equal(a.payload["head.weight"], MODEL["head.weight"]) for a in found if "model" in a.kind)


def test_a_transposed_array_is_written_as_it_is(tmp_path: Path) -> None:
    Inbox(tmp_path).message(0, "release", "server", ["public"], {"global_model": {"w": MODEL["head.weight"].T}})
    assert np.array_equal(read(tmp_path)[0].payload["w"], MODEL["head.weight"].T)


@pytest.mark.parametrize("cut", [1, 20, 150])
def test_a_recorder_that_was_killed_continues_behind_the_last_whole_line(tmp_path: Path, cut: int) -> None:
    recorded(tmp_path)
    path = tmp_path / MANIFEST
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])  # the last line was not finished; its file was
    again = Inbox(tmp_path)
    assert again.client("node-1") == "client/1" and again.client("new") == "client/2"
    again.message(2, "uplink", "client/2", ["server"], {"local_model": MODEL})
    assert [a.round for a in read(tmp_path)][-1] == 2
    assert len(list(manifest(tmp_path))) == 6


def test_processes_that_share_a_folder_share_its_names_and_numbers(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\nfrom fedaudit.audit.importing.recorders.plain import Inbox\n"
        "for t in range(10):\n"
        "    inbox = Inbox(sys.argv[1])\n"
        "    for node in 'abc':\n"
        "        inbox.message(t, 'uplink', inbox.client(node), ['server'], {'local_model': {'w': np.ones(2)}})\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [p.wait() for p in both] == [0, 0]
    assert len(read(tmp_path)) == 60
    parties = [(x["node"], x["party"]) for x in lines(tmp_path) if "party" in x]
    assert len(parties) == 3 and {p for _, p in parties} == {"client/0", "client/1", "client/2"}


def test_what_cannot_be_recorded_is_counted_and_training_goes_on(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.message(0, "uplink", inbox.client("a"), ["server"], {"local_model": {"w": np.array([object()])}})
    inbox.message(0, "uplink", inbox.client("a"), ["server"], {"local_model": {}})
    inbox.message(0, "uplink", inbox.client("a"), ["server"], {"local_model": MODEL})
    errors = [x["error"] for x in lines(tmp_path) if "error" in x]
    assert len(errors) == 2 and "neither numbers, text nor bytes" in errors[0] and len(read(tmp_path)) == 1
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    stuck = Inbox(blocked)
    stuck.message(0, "uplink", stuck.client("a"), ["server"], {"local_model": MODEL})  # raises nothing


def test_a_model_sent_twice_to_the_same_clients_is_kept_once(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    for to in (["client/0", "client/1"], ["client/0"], ["client/2"]):
        inbox.message(1, "downlink", "server", ["client"], {"global_model": MODEL}, receivers=to)
    assert [x["receivers"] for x in manifest(tmp_path)] == [["client/0", "client/1"], ["client/2"]]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_recorder_is_one_file_without_anything_of_ours(hook: str) -> None:
    text = source(hook)
    assert "class Inbox" in text and "from audit" not in text and "import audit" not in text
    compile(text, hook, "exec")


def test_the_plain_recorder_runs_without_fedaudit(tmp_path: Path) -> None:
    (tmp_path / "recorder.py").write_text(source("plain"))
    code = (
        "import sys; sys.path.insert(0, '.')\nfrom recorder import Inbox\n"
        "Inbox('inbox').message(0, 'uplink', 'client/0', ['server'], {'local_loss': {'loss': 1.5}})"
    )
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)
    assert float(read(tmp_path / "inbox")[0].payload["loss"]) == 1.5


@pytest.mark.parametrize("head", [{"format": "fedaudit-artifacts", "version": 2}, {"format": "x", "version": 1}])
def test_a_folder_of_another_version_gets_one_sentence(tmp_path: Path, head: dict[str, object]) -> None:
    recorded(tmp_path)
    text = (tmp_path / MANIFEST).read_text().splitlines()
    (tmp_path / MANIFEST).write_text("\n".join([json.dumps(head), *text[1:]]) + "\n")
    with pytest.raises(UserError, match=r"reads fedaudit-artifacts, version 1"):
        read(tmp_path)
    (tmp_path / MANIFEST).write_text("\n".join(text[1:]) + "\n")  # as a simulated folder: no such line
    assert len(read(tmp_path)) == 10


def test_a_message_costs_the_same_however_many_were_recorded(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    for t in range(3):
        for _ in range(2):  # a client that sends twice in a round
            inbox.message(t, "uplink", inbox.client("a"), ["server"], {"local_model": MODEL})
    names = [x["message"] for x in manifest(tmp_path)]
    assert names[:2] == ["r00000/client-0.uplink", "r00000/client-0.uplink.2"] and len(set(names)) == 6
    again = Inbox(tmp_path)
    again.message(2, "uplink", again.client("a"), ["server"], {"local_model": MODEL})
    assert [x["message"] for x in manifest(tmp_path)][-1] == "r00002/client-0.uplink.3"
    assert set(again._names) == {f"r0000{t}/client-0.uplink" for t in range(3)}  # looked up, never gone through


def test_checkpoints_become_an_inbox_of_models_made_of_everybodys_examples(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for t in (0, 1, 10):
        np.savez(models / f"round_{t}.npz", w=np.full(3, t, np.float32))
    (models / "notes.txt").write_text("no checkpoint")
    (tmp_path / "recorder.py").write_text(source("checkpoints"))
    words = [sys.executable, "-I", "recorder.py", "models", "inbox", "2"]
    done = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("3 checkpoints recorded")
    found = read(tmp_path / "inbox")
    assert [(a.round, str(a.sender), float(a.payload["w"][0])) for a in found] == [
        (0, "server", 0.0),
        (1, "server", 1.0),
        (10, "server", 10.0),
    ]
    lines_ = [x for x in manifest(tmp_path / "inbox") if "message" in x]
    assert [x.get("behind") for x in lines_] == [None, {"global_model": [0, 1]}, {"global_model": [0, 1]}]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_an_inbox_is_its_users_alone_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        recorded(tmp_path / "inbox")
    finally:
        os.umask(before)
    found = [tmp_path / "inbox", *(tmp_path / "inbox").rglob("*")]
    assert len(found) == 1 + 1 + 2 + 6
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("name", ["ENOSYS", "EOPNOTSUPP", "ENOLCK"])
def test_a_recorder_goes_on_where_nothing_can_be_locked_and_says_so_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(logging.root, "handlers", [])  # those of libraries that other tests load
    recorded(tmp_path)
    assert len(list(manifest(tmp_path))) == 6 and not [x for x in lines(tmp_path) if "error" in x]
    assert capsys.readouterr().err == f"{tmp_path} cannot be locked: let one process alone write to it\n"


def test_a_recorder_whose_disk_fails_says_so_and_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    monkeypatch.setattr(logging.root, "handlers", [])
    assert not Inbox(tmp_path).message(0, "downlink", "server", ["client"], {"global_model": MODEL})
    assert "not recorded" in capsys.readouterr().err
