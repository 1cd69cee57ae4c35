"""Commands that open what others wrote run in a child process: in a box, with little memory, time and files.

The parent makes a folder for temporary files, waits, and removes it. It reads nothing. A child that asks for more
than it may have ends with a sentence and exit code 2, whatever it was reading. FEDAUDIT_MEMORY (GiB) and
FEDAUDIT_SECONDS allow more: `verify --replay` of a long run may need it.
"""

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from fedaudit.audit.cli import box
from fedaudit.fl.runtime import children
from fedaudit.fl.runtime.errors import UserError

WEEK = 604_800  # seconds


class ProcessLimits(NamedTuple):
    """What a confined command may use; a file that it writes may be as large as its memory."""

    memory: int = 8  # GiB of address space
    seconds: int = 3600
    files: int = 4096  # open at once


def choose_limits(works: bool) -> ProcessLimits:
    """Those of a reader, or of a command that trains and attacks for hours; the environment may say otherwise."""
    usual = ProcessLimits(memory=max(8, _count_memory()), seconds=WEEK) if works else ProcessLimits()
    return usual._replace(
        memory=_setting("FEDAUDIT_MEMORY", usual.memory), seconds=_setting("FEDAUDIT_SECONDS", usual.seconds)
    )


def _count_memory() -> int:
    """GiB of the machine; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30
    except (ValueError, OSError):
        return 0


def confine(access: box.Access, within: ProcessLimits) -> None:
    """Go on in a child process that is in a box. This process waits, and leaves with the child's exit code.

    What the system refuses is one sentence, and the command goes on with what it grants.
    """
    scratch = _make_scratch()
    made = list(_make(access.writes))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        child = os.fork()
    except OSError as error:
        _remove(scratch, made)
        raise UserError(
            f"the system starts no process for this command: {error.strerror}",
            hint="end others, or see `ulimit -u`",
        ) from error
    if not child:
        missing = [] if scratch else ["give it a folder for temporary files"]
        missing += _restrict(within)
        _use(scratch)
        missing += box.enter(access._replace(writes=[*access.writes, *scratch]))
        if missing:
            sys.stderr.write(f"note: this system cannot {', nor '.join(missing)}; the other limits hold\n")
        return
    try:
        code = _wait(child, within)
    finally:
        _remove(scratch, made)
    os._exit(code)  # nothing is left to do here


def _make_scratch() -> list[Path]:
    """A new folder for temporary files; none where the system has no place for one."""
    try:
        return [Path(tempfile.mkdtemp(prefix="fedaudit-"))]
    except OSError:
        return []


def _make(folders: Sequence[Path]) -> Iterator[Path]:
    """Make the folders that will be written, since only what exists can be admitted. Yields each that is new."""
    for folder in folders:
        for path in reversed([folder, *folder.parents]):
            with contextlib.suppress(OSError):  # it is there, or the command says what is wrong
                path.mkdir(mode=0o700)
                yield path


def _remove(scratch: Sequence[Path], made: Sequence[Path]) -> None:
    for path in scratch:
        shutil.rmtree(path, ignore_errors=True)
    for path in reversed(made):
        with contextlib.suppress(OSError):  # it holds something
            path.rmdir()


def _wait(child: int, within: ProcessLimits) -> int:
    def too_long(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(within.seconds)
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except KeyboardInterrupt:  # the child has it as well, and says so
            continue
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    name = signal.Signals(-code).name
    sys.stderr.write(
        f"error: it was stopped by {name}: it may use {within.memory} GiB of memory "
        f"and {within.seconds:,} seconds\n"
        "  hint: FEDAUDIT_MEMORY=16 and FEDAUDIT_SECONDS=7200 allow more; do not trust a folder that needs it\n"
    )
    return 2


def _restrict(within: ProcessLimits) -> list[str]:
    """Limit what this process uses. Returns what this system cannot do, in words."""
    children.die_with_parent()
    refused = False
    for what, most in (
        (resource.RLIMIT_AS, within.memory << 30),
        (resource.RLIMIT_FSIZE, within.memory << 30),
        (resource.RLIMIT_CPU, within.seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_NOFILE, within.files),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            hard = resource.getrlimit(what)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):  # ValueError is Python's word for EINVAL and EPERM
            refused = True
    return ["limit what it uses"] if refused else []


def _use(scratch: Sequence[Path]) -> None:
    """Temporary files lie in `scratch`, of this process and of those that it starts."""
    for path in scratch:
        for name in ("TMPDIR", "MPLCONFIGDIR"):
            os.environ[name] = str(path)
    tempfile.tempdir = None
    os.environ["JOBLIB_MULTIPROCESSING"] = "0"  # it wants semaphores outside, and complains
    os.environ[children.BOXED] = "1"


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and 0 < int(text) < 1 << 20 else default
