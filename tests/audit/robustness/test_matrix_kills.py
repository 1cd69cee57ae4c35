"""A matrix that is killed at ten random moments continues to the bytes of one that was left alone."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.audit.robustness.test_matrix import TEXT
from tests.audit.tiny import VERDICTS

KILLS = 10
SAID = "said.txt"  # what runs print while they last
LONGEST = 1.5  # seconds after a start has come to its cells
ROOT = Path(__file__).parents[3]
# What the cells left: without times, which no digest of the chain covers either
KEPT = ("evidence/matrix.json", "matrix/**/metrics.jsonl", "matrix/**/ledger.jsonl", "matrix/**/*.safetensors")


def started(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """`fedaudit run` in a process group of its own, so that its workers are killed with it."""
    command = [sys.executable, "-m", "fedaudit", "run", str(folder / "c.yaml"), "--out", str(out)]
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},  # its plugins are in tests, which `-m` leaves out
        stdout=subprocess.DEVNULL,
        stderr=(folder / SAID).open("ab"),
        start_new_session=True,
    )


def digests(out: Path) -> dict[str, str]:
    files = sorted({f for pattern in KEPT for f in out.glob(pattern)})
    return {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def cells(out: Path) -> int:
    return sum(1 for _ in out.glob("matrix/**/checkpoint"))


@pytest.mark.nightly
def test_ten_kills_change_no_byte(tmp_path: Path) -> None:
    plain = yaml.safe_load(TEXT) | {"workers": 2, "report": ["json"]}
    plain["method"] |= {"rounds": 40}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert started(tmp_path, whole).wait() in VERDICTS, (tmp_path / SAID).read_text()
    moments, killed, seen = random.Random(12), 0, set[int]()
    while killed < KILLS:
        run, before = started(tmp_path, broken), cells(broken)
        while run.poll() is None and cells(broken) <= before and not (broken / "evidence/matrix.json").exists():
            time.sleep(0.02)
        time.sleep(moments.uniform(0, LONGEST))
        if run.poll() is not None:
            break
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        killed, seen = killed + 1, seen | {cells(broken)}
    assert started(tmp_path, broken).wait() in VERDICTS, (tmp_path / SAID).read_text()
    assert killed == KILLS and len(seen) > 2  # kills came at different cells, and none after the end
    assert digests(whole) == digests(broken) and len(digests(whole)) > 20
