"""One command in a forked process that has all loaded, with 2 GiB and 60 seconds, and what became of it."""

import contextlib
import io
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS, MEMORY = 60, 2 << 30  # of resident memory, above which it is a fault
CODES = (0, 1, 2, 3)
LOOKS_FOR_NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
REACHES = (
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.sendmsg",
)  # a tuple is an address of a network
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = {  # events with the paths that they begin with
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), 1),
    **dict.fromkeys(("os.rename", "os.link"), 2),
}
BAD = re.compile(r"Traceback|unexpected [A-Z]\w+|Segmentation|[\x1b\u202e]")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    text: str
    seconds: float
    peak: int  # bytes, beside what it began with

    def fault(self) -> str:
        """What must never happen, as a phrase; empty where nothing of it did."""
        if self.code not in CODES:
            return f"exit code {self.code}"
        if found := BAD.search(self.text):
            return f"it says {found[0]!r}"
        if self.peak > MEMORY:
            return f"{self.peak >> 20} MiB"
        return ""


def ended(act: Callable[[], None], sandbox: Path) -> Outcome:
    """Run `act` in a child whose working directory is `sandbox`."""
    out, before = sandbox.parent / f"{sandbox.name}.out", _measure_idle_child()
    started = time.monotonic()
    child = os.fork()
    if not child:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")  # not what a test runner put there
        os.chdir(sandbox)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        signal.alarm(SECONDS)
        watch(sandbox)
        code = 1
        try:
            act()
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException as error:
            traceback.print_exception(error) if os.environ.get("FEDAUDIT_DEBUG") else None
            print(f"Traceback: {type(error).__name__}: {error}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    text = out.read_text(errors="replace")
    out.unlink()
    grown = (used.ru_maxrss << 10) - before
    return Outcome(os.waitstatus_to_exitcode(status), text, time.monotonic() - started, grown)


def _measure_idle_child() -> int:
    """Peak of a child that does nothing, in bytes: what it shares with this process, which may have grown."""
    if not (child := os.fork()):
        os._exit(0)
    return os.wait4(child, 0)[2].ru_maxrss << 10


def watch(sandbox: Path) -> None:
    """From now on this process says so where it looks for a network, or changes a file outside of `sandbox`.

    Temporary files and the user's index of runs are its own.
    """
    temporary = [f"{tempfile.gettempdir()}/{start}" for start in ("tmp", "fedaudit-")]
    own = (f"{sandbox.resolve()}/", str(Path.home() / ".cache" / "fedaudit"), os.devnull, *temporary)
    sys.dont_write_bytecode = True

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in LOOKS_FOR_NAMES or (event in REACHES and isinstance(arguments[1], tuple)):
            os.write(1, f"unexpected Network: {event} {arguments[-1]!r}\n".encode())
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITES):
            return
        if event in CHANGES or event == "open":
            for path in arguments[: CHANGES.get(event, 1)]:
                if isinstance(path, int) or os.path.realpath(os.fsdecode(path)).startswith(own):
                    continue
                os.write(1, f"unexpected Write: {event} {path!r}\n".encode())

    sys.addaudithook(hear)


def command(*arguments: str) -> Callable[[], None]:
    """The command line, as it is started."""

    def act() -> None:
        from fedaudit.audit.cli.main import app

        sys.stdin = io.StringIO("y\n")  # to whatever it asks
        app(list(arguments))

    return act


@contextlib.contextmanager
def guarded(sandbox: Path, inside: str) -> Iterator[list[str]]:
    """A list that afterwards has what was written in the sandbox outside of `inside`."""
    (sandbox / "mine.txt").write_text("mine")
    before, found = _seen(sandbox, inside), list[str]()
    yield found
    after = _seen(sandbox, inside)
    found += [str(p) for p in sorted(before.keys() | after.keys()) if before.get(p) != after.get(p)]


def _seen(sandbox: Path, inside: str) -> dict[Path, bytes]:
    found = {}
    for top in sandbox.iterdir():
        if top.name != inside:
            for path in [top, *top.rglob("*")] if top.is_dir() else [top]:
                found[path] = path.read_bytes() if path.is_file() else b""
    return found
