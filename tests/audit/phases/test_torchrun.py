"""The same command under torchrun: ranks give the bytes of one process and share what there is to do; a lost rank
ends the run by name."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from socket import socket

import pytest
import yaml
from torch.distributed import HashStore  # type: ignore[attr-defined]

from fedaudit.audit.planning import shares
from fedaudit.fl.runtime import children, torchrun
from fedaudit.fl.runtime.errors import UserError
from tests.audit.phases.kills import config

ROOT = Path(__file__).parents[3]
SIMULATE = ("-m", "fedaudit", "run", "--phase", "simulate")
JOB = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# torchrun shows a traceback of its own; ours would name a file of ours (.venv may lie in the same folder).
OURS = re.compile(rf'File "{re.escape(str(ROOT))}/(attacks|audit|fl|reports)/')
SECONDS = re.compile(rb'"seconds": [0-9.e-]+')
LEFT = ("metrics.jsonl", "ledger.jsonl", "artifacts/manifest.jsonl", "checkpoint/state.safetensors")


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def job(path: Path, out: Path) -> subprocess.Popen[str]:
    command = [*JOB, *SIMULATE, str(path), "--out", str(out), "--workers", "torchrun"]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def alone(path: Path, out: Path) -> dict[str, bytes]:
    command = [sys.executable, *SIMULATE, str(path), "--out", str(out), "--workers", "0"]
    subprocess.run(command, env=environment(), check=True, timeout=300)
    return files(out)


def files(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in LEFT}


def audited(path: Path, out: Path, *launcher: str, workers: str) -> dict[str, bytes]:
    """What attacks and cells left; configs say how many workers there were, and evidence how long it took."""
    command = [sys.executable, *launcher, "-m", "fedaudit", "run", str(path), "--out", str(out)]
    subprocess.run([*command, "--workers", workers], env=environment(), check=False, timeout=600)
    wanted = [*out.rglob("evidence/*.json"), *out.rglob("metrics.jsonl"), *out.rglob("manifest.jsonl")]
    return {str(p.relative_to(out)): SECONDS.sub(b"", p.read_bytes()) for p in wanted}


def processes_of_rank(number: int) -> Iterator[int]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={number}".encode() in told and f"FEDAUDIT_TEST={os.getpid()}".encode() in told:
            yield int(place.name)


@pytest.mark.nightly
def test_ranks_share_attacks_and_cells_and_leave_what_one_process_leaves(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    noise = {"name": "noise", "protections": [{"name": "dp_gaussian", "clip_norm": 1, "noise_multiplier": 1}]}
    matrix = {"adversaries": ["sign_flip"], "aggregators": ["median"], "malicious": [0, 1]}
    attacks = ("count_recovery", "loss_threshold", "ridge")
    stated = config("rebafl", *attacks, matrix=matrix, variants=[noise])
    path.write_text(yaml.safe_dump(stated))
    alone = audited(path, tmp_path / "one", workers="0")
    shared = audited(path, tmp_path / "two", *JOB[1:], workers="torchrun")
    assert len(alone) > 20 and shared.keys() == alone.keys()
    assert [name for name in alone if alone[name] != shared[name]] == []


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    """That of a job of two ranks, which are both this process."""
    made = HashStore()
    monkeypatch.setattr(torchrun, "_stores", [made])
    monkeypatch.setattr(torchrun, "_calls", [])
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    return made


def test_each_piece_is_taken_by_one_rank_and_its_answer_reaches_rank_0(store: HashStore) -> None:
    first, second = torchrun.call("attacks", "x"), torchrun.Call(0)
    taken = {0: list[int](), 1: list[int]()}
    claims = first.claim(range(5)), second.claim(range(5))
    for turn in (0, 1, 1, 0, 1, 0, 1):
        taken[turn] += [piece for piece in [next(claims[turn], None)] if piece is not None]
    assert taken == {0: [0, 3], 1: [1, 2, 4]}
    for piece in taken[1]:
        second.end(piece, f"answer {piece}")
    assert dict(first.answers(range(5))) == {1: "answer 1", 2: "answer 2", 4: "answer 4"}


def test_other_ranks_do_what_they_are_called_for_one_after_another(store: HashStore) -> None:
    heard = list[tuple[str, str]]()

    def last(_: torchrun.Call, what: str) -> None:
        heard.append(("cells", what))
        with torchrun.lead():  # rank 0 ends
            pass

    torchrun.call("attacks", "one")
    torchrun.call("cells", "two")
    torchrun.follow({"attacks": lambda _, what: heard.append(("attacks", what)), "cells": last})
    assert heard == [("attacks", "one"), ("cells", "two")]


@pytest.mark.parametrize("seen", [True, False])
def test_a_rank_that_sees_another_folder_takes_nothing(
    seen: bool, store: HashStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "PATIENCE", 0.0)
    (tmp_path / "phases.json").write_text("{}")
    call = shares.share_out("torchrun", "attacks", tmp_path / "matrix/median", 7)
    assert call is not None
    if not seen:
        (tmp_path / "phases.json").write_text("{ }")
    asked = list[object]()
    [_, text] = json.loads(store.get("fedaudit/call/0"))
    shares.do_share(lambda *words: asked.append(words[1:]), call, text)
    assert asked == ([(tmp_path, 7)] if seen else [])


def test_a_job_of_one_rank_asks_nobody(store: HashStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert shares.share_out("torchrun", "attacks", tmp_path, 7) is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert shares.share_out("auto", "attacks", tmp_path, 7) is None


@pytest.mark.nightly
@pytest.mark.parametrize("method", ["fedavg", "rebafl", "scaffold", "feddc_condense", "gandalf"])
def test_two_ranks_leave_what_one_process_leaves(method: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config(method)))
    started = job(path, tmp_path / "two")
    _, said = started.communicate(timeout=300)
    assert started.returncode == 0, said
    assert files(tmp_path / "two") == alone(path, tmp_path / "one")


@pytest.mark.nightly
def test_a_lost_rank_ends_the_run_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUDIT_TEST", str(os.getpid()))
    path, out = tmp_path / "c.yaml", tmp_path / "two"
    stated = config("fedavg")
    stated["method"] |= {"rounds": 150}
    path.write_text(yaml.safe_dump(stated))
    started = job(path, out)
    while not (out / "checkpoint/state.safetensors").exists():
        assert started.poll() is None
        time.sleep(0.05)
    for process in processes_of_rank(1):
        os.kill(process, signal.SIGKILL)
    _, said = started.communicate(timeout=300)
    assert started.returncode and not OURS.search(said), said
    assert "hint: the same command goes on from the last checkpoint" in said
    whole = alone(path, tmp_path / "one")
    assert files(out) != whole
    again = job(path, out)
    assert again.wait(timeout=300) == 0
    assert files(out) == whole


def test_a_rank_whose_torchrun_has_ended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        job = {"RUN_ID": "1", "USE_AGENT_STORE": "True", "RESTART_COUNT": "0"}
        for name, value in {
            **{f"TORCHELASTIC_{k}": v for k, v in job.items()},
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(taken.getsockname()[1]),
            "RANK": "1",
            "WORLD_SIZE": "2",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torchrun, "_stores", [])
        monkeypatch.setattr(torchrun, "_CONNECTING", timedelta(seconds=1))
        monkeypatch.setattr(children, "die_with_parent", lambda: None)
        with pytest.raises(UserError, match="store of the torchrun job cannot be reached"):
            torchrun.follow({})


@pytest.mark.nightly
def test_no_rank_outlives_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUDIT_TEST", str(os.getpid()))
    path = tmp_path / "c.yaml"
    stated = config("fedavg")
    stated["method"] |= {"rounds": 150}
    path.write_text(yaml.safe_dump(stated))
    started = job(path, tmp_path / "two")
    while not (tmp_path / "two/checkpoint/state.safetensors").exists():
        assert started.poll() is None
        time.sleep(0.05)
    started.kill()
    until = time.monotonic() + 30
    while left := [*processes_of_rank(0), *processes_of_rank(1)]:
        assert time.monotonic() < until, left
        time.sleep(0.2)


@pytest.mark.nightly
def test_a_process_that_torchrun_did_not_start_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config("fedavg")))
    command = [sys.executable, *SIMULATE, str(path), "--out", str(tmp_path / "out"), "--workers", "torchrun"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 2 and "torchrun did not start this process" in found.stderr
