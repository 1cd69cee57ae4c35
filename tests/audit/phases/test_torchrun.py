"""The same command under torchrun: two ranks give the bytes of one process; a lost rank ends the run by name."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.audit.phases.kills import config

ROOT = Path(__file__).parents[3]
SIMULATE = ("-m", "fedaudit", "phase", "simulate")
JOB = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# torchrun shows a traceback of its own; ours would name a file of ours (.venv may lie in the same folder).
OURS = re.compile(rf'File "{re.escape(str(ROOT))}/(attacks|audit|fl|reports)/')
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


def processes_of_rank(number: int) -> Iterator[int]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={number}".encode() in told and f"FEDAUDIT_TEST={os.getpid()}".encode() in told:
            yield int(place.name)


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


@pytest.mark.nightly
def test_a_process_that_torchrun_did_not_start_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config("fedavg")))
    command = [sys.executable, *SIMULATE, str(path), "--out", str(tmp_path / "out"), "--workers", "torchrun"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 2 and "torchrun did not start this process" in found.stderr
