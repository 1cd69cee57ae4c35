"""Contenders of the bench as it sees them: processes that are asked for one round after the other, in turns.

A peer runs in an environment of its own, `.peers/NAME`, which `make bench-peers` makes from
`benchmarks/speed/peers/NAME.txt`, or with the interpreter that `--python NAME=PATH` names. One that is not
installed, fails or is silent is a row "not run".
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedaudit.fl.runtime.machine import cores

ROOT = Path(__file__).parents[2]
PEERS = {"pfl": "pfl-research", "fedlab": "FedLab", "flower": "Flower", "blazefl": "BlazeFL", "jax_steps": "JAX"}
# What fl/runtime/workers.py:tune_allocator sets, as glibc reads it when a process starts
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
LONGEST = 600.0  # seconds that a contender may take for an answer


class NotRun(Exception):
    """A contender is not installed, has ended, or does not answer; says which."""


@dataclass(frozen=True)
class Contender:
    """How a contender is started; without a command it is not installed, and `make TARGET` would do it."""

    name: str
    command: Sequence[str]
    target: str = "bench-peers"
    tuned: bool = True  # whether its allocator keeps freed pages
    averages: bool = True  # whether it is FedAvg, and so must reach the loss of the others


@dataclass
class Row:
    """A contender's line of the table."""

    name: str
    averages: bool = True
    version: str = ""
    runs: str = ""  # in which processes
    speeds: list[float] = field(default_factory=list)  # client-samples per second of each turn
    losses: list[float] = field(default_factory=list)  # after each round, that of everybody included
    reason: str = ""  # why it was not run


def peer(name: str, file: Path, python: Path | None = None, device: str = "cpu", tuned: bool = True) -> Contender:
    """A peer in its environment, or with another interpreter. pfl runs a process a core, or one a GPU."""
    python = python or ROOT / ".peers" / name / "bin" / "python"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    processes = str(cores() if device == "cpu" else torch.cuda.device_count())
    command = [
        str(python),
        *([*torchrun, processes] if name == "pfl" else []),
        "-m",
        f"benchmarks.speed.peers.{name}",
        str(file),
    ]
    title = PEERS[name] + ("" if tuned else ", allocator as shipped")
    target = "bench-peers" + (" PYTHON=python3.12" if name == "blazefl" else "")  # it runs on no older one
    return Contender(title, command if python.is_file() else (), target, tuned)


def plain(file: Path, *layout: str, tuned: bool = True) -> Contender:
    """The plain loop; `layout` may be channels_last."""
    title = ", ".join(["plain loop", *layout, *([] if tuned else ["allocator as shipped"])])
    command = [sys.executable, "-m", "benchmarks.speed.peers.plain", str(file), *layout]
    return Contender(title, command, tuned=tuned)


def method(name: str, file: Path, workers: int, averages: bool) -> Contender:
    """A method of ours; whether it averages models as the plain loop does."""
    command = [sys.executable, "-m", "benchmarks.speed.ours", str(file), name, str(workers)]
    return Contender(f"ours, {name}", command, averages=averages)


class Running:
    """A contender at work; its first answer says that it can begin."""

    def __init__(self, contender: Contender) -> None:
        if not contender.command:
            raise NotRun(f"not installed: `make {contender.target}`")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() does
        inherited = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
        self._process = subprocess.Popen(
            contender.command,
            env=inherited | SILENT | {"PYTHONPATH": str(ROOT)} | (ALLOCATOR if contender.tuned else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def ask(self) -> None:
        """Ask for the next round."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer will say why
            print(file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        """The next line that the contender prints; raises NotRun where there is none."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LONGEST)[0]:
            raise NotRun(f"no answer in {LONGEST:.0f} seconds")
        if not (line := self._process.stdout.readline()):
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").split("\n")
            last = next((one.strip() for one in reversed(said) if "Error" in one), "it said nothing")
            raise NotRun(f"ended: {last[:200]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End of input ends a contender; what is left of it after a while is killed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._errors.close()


@contextmanager
def _excused(row: Row, show: Callable[[str], None]) -> Iterator[None]:
    """A contender that fails is a row, and the others go on."""
    try:
        yield
    except NotRun as failure:
        row.reason = str(failure)
        show(f"{row.name}: not run, {failure}")


def race(
    contenders: Sequence[Contender],
    samples: Sequence[int],
    between: Callable[[], None] = lambda: None,
    show: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """A row for each contender. `samples` is what each round trains; the first one is not timed.

    In each turn every contender trains one round, each time another one first, so that a machine that drifts
    slows all of them alike. `between` is called before every timed turn.
    """
    rows = {contender.name: Row(contender.name, contender.averages) for contender in contenders}
    with ExitStack() as stack:
        running: dict[str, Running] = {}
        for contender in contenders:
            with _excused(rows[contender.name], show):
                one = Running(contender)
                stack.callback(one.close)
                about = one.answer()
                rows[contender.name].version, rows[contender.name].runs = about["version"], about["runs"]
                running[contender.name] = one
        for turn, count in enumerate(samples):
            if turn:
                between()
            names = list(running)
            first = turn % max(1, len(names))
            for name in [*names[first:], *names[:first]]:
                row = rows[name]
                with _excused(row, show):
                    running[name].ask()
                    answer = running[name].answer()
                    row.losses.append(answer["loss"])
                    if turn:
                        row.speeds.append(count / answer["seconds"])
                    show(f"turn {turn} of {len(samples) - 1}: {name} {count / answer['seconds']:,.0f}")
                if row.reason:
                    del running[name]
    return list(rows.values())
