"""Commands that read a run folder or an inbox of others run in a child process with little memory and time.

The parent does nothing but wait. A child that asks for more ends with a sentence and exit code 2, whatever it was
reading. FEDAUDIT_MEMORY (GiB) and FEDAUDIT_SECONDS allow more: `verify --replay` of a long run may need it.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

READERS = (
    *("check", "verify", "report", "score", "compare", "budget", "seal", "explain"),
    *("doctor", "import", "init"),  # an inbox
)
MEMORY, SECONDS = 8, 3600  # GiB of address space, and seconds


def reads_a_folder(arguments: Sequence[str]) -> bool:
    return next((a for a in arguments if not a.startswith("-")), "") in READERS


def limited(act: Callable[[], None]) -> int:
    """Exit code of `act`, run in a child process."""
    memory, seconds = _told("FEDAUDIT_MEMORY", MEMORY), _told("FEDAUDIT_SECONDS", SECONDS)
    child = os.fork()
    if not child:
        _restrict(memory << 30, seconds)
        act()  # leaves by SystemExit
        os._exit(0)

    def too_long(number: int, frame: FrameType | None) -> None:
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except KeyboardInterrupt:  # the child has it as well, and says so
            continue
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    name = signal.Signals(-code).name
    sys.stderr.write(
        f"error: it was stopped by {name}: it may use {memory} GiB of memory and {seconds:,} seconds\n"
        "  hint: FEDAUDIT_MEMORY=16 and FEDAUDIT_SECONDS=7200 allow more; do not trust a folder that needs it\n"
    )
    return 2


def _restrict(memory: int, seconds: int) -> None:
    import resource

    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _told(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and 0 < int(text) < 1 << 20 else default
