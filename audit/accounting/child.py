"""A function in a process of its own, with a cap on time and memory.

Numerical accountants hang, or ask for terabytes, on odd inputs. Past a cap the child is killed and
the caller hears why; nothing of it stays behind. Time is that of the processor: by the clock a bound would depend
on what else the machine does, and a busy reviewer would refuse an honest folder. Starting a child takes a
second, most of it imports, so that many calls share one (keep).
"""

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from fedaudit.fl.runtime import children
from fedaudit.fl.runtime.errors import quote_error
from fedaudit.fl.runtime.machine import hide_unused, own_process

PATIENCE = 20  # times as long by the clock as by the processor, before a child counts as hung
STEP = 0.25  # seconds between two looks at it

P = ParamSpec("P")
T = TypeVar("T")


class Exceeded(Exception):
    """The child was stopped, or failed; the message is a phrase that says why."""


def call(function: Callable[P, T], seconds: float, gigabytes: float, *args: P.args, **kwargs: P.kwargs) -> T:
    """function(*args, **kwargs), computed in a child; function and arguments must be picklable.

    Raises Exceeded past `seconds` of processor time, past `gigabytes` of address space (where the system
    can limit that), and where the function itself raises. Within a child it is simply called: the caps of
    that child hold.
    """
    if multiprocessing.current_process().daemon:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise Exceeded(_describe_failure(error)) from error
    child = _kept.pop(gigabytes, None) or Child(gigabytes)
    try:
        answer: T = child.ask(seconds, function, args, kwargs)
    except BaseException:
        child.end()
        raise
    if not _blocks or _kept.setdefault(gigabytes, child) is not child:
        child.end()
    return answer


_blocks: list[None] = []  # of keep() that are open
_kept: dict[float, "Child"] = {}  # idle children of an open block, by their cap


@contextlib.contextmanager
def keep() -> Iterator[None]:
    """Inside, calls with the same cap share one child, which imports libraries once and ends with the block."""
    _blocks.append(None)
    try:
        yield
    finally:
        _blocks.pop()
        while _kept and not _blocks:
            _kept.popitem()[1].end()


class Child:
    """A process that answers one question after the other."""

    def __init__(self, gigabytes: float) -> None:
        self.gigabytes = gigabytes
        context: Any = children.get_context("spawn")  # a fork would inherit locked threads
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_run_child, args=(theirs, gigabytes), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, seconds: float, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What function(*args, **kwargs) gives there; raises as call() does, and is of no use any more then."""
        try:
            self.pipe.send((function, args, kwargs))
            self._wait(seconds)
            good, answer = self.pipe.recv()
        except (EOFError, OSError):  # OSError also where it ended in the middle of its answer
            raise Exceeded(f"it was killed, or needed more than {self.gigabytes:g} GB") from None
        if not good:
            raise Exceeded(answer)
        return answer

    def _wait(self, seconds: float) -> None:
        """Until it answers or is gone; raises Exceeded past `seconds` of its processor, or where it hangs."""
        began, until = self._count_seconds(), time.monotonic() + PATIENCE * seconds
        while not self.pipe.poll(min(seconds, STEP)):
            if self._count_seconds() - began >= seconds or time.monotonic() >= until:
                raise Exceeded(f"it took longer than {seconds:g} s")

    def _count_seconds(self) -> float:
        """Of the processor that it has used, or of the clock where the system does not say."""
        if sys.platform != "linux" or self.process.pid is None:
            return time.monotonic()
        try:
            return time.clock_gettime((~self.process.pid << 3) | 2)  # clock_getcpuclockid(3)
        except OSError:  # it is gone, which the pipe says
            return 0.0

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _run_child(pipe: Connection, gigabytes: float) -> None:
    own_process()
    hide_unused("cpu")
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = int(gigabytes * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with contextlib.suppress(EOFError, BrokenPipeError):  # whoever asked is gone
        while True:
            function, args, kwargs = pipe.recv()
            try:
                pipe.send((True, function(*args, **kwargs)))
            except MemoryError:
                pipe.send((False, f"it needed more than {gigabytes:g} GB"))
            except Exception as error:  # noqa: BLE001
                pipe.send((False, _describe_failure(error)))


def _describe_failure(error: Exception) -> str:
    return f"it failed with {type(error).__name__}: {quote_error(error)}"
