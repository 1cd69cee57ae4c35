"""Side by side: long pieces of work over processes, with progress, where a process may die.

Unlike fl/runtime/workers.py, whose workers answer in order and fail together, a piece that takes its process
with it costs nobody else: the process is replaced, and what ended it is said.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar, cast

import torch

from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.phases.plan import Progress
from fedaudit.fl.runtime import children, foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.workers import die_with_parent, tune_allocator

T = TypeVar("T")
R = TypeVar("R")
SECONDS = 0.2  # between two words of progress of one process
PATIENCE = 0.5  # seconds until a core that became free is taken


@dataclass(frozen=True)
class Death:
    """A process ended without an answer; `code` is its exit code, or minus a signal's number."""

    code: int

    def __str__(self) -> str:
        if self.code < 0:
            return f"its process was ended by {signal.Signals(-self.code).name}, probably for lack of memory"
        return f"its process ended with code {self.code}"


class SpareCores:
    """Cores that no process uses, known to all processes of a run: who starts a process takes one for it.

    A pipe with a byte for each, as of a make's jobserver. A core is lost where a process that took it is killed.
    """

    def __init__(self, context: Any, number: int = 0) -> None:
        self._taken, self._given = context.Pipe(duplex=False)
        os.set_blocking(self._taken.fileno(), False)
        for _ in range(number):
            self.give()

    def give(self) -> None:
        """One more is free."""
        os.write(self._given.fileno(), b".")

    def take(self) -> bool:
        """Take one; False where none is free."""
        try:
            return bool(os.read(self._taken.fileno(), 1))
        except BlockingIOError:
            return False


_spare: SpareCores | None = None  # in a process that others work beside


def count_copies(wanted: int, pieces: int) -> int:
    """Copies of this process that work on so many pieces at first, of so many wanted; 0: none, it works itself.

    One is enough where cores may become free beside it.
    """
    if not is_copyable() or pieces < 2:
        return 0
    return min(wanted, pieces) if wanted > 1 else int(_spare is not None)


def side_by_side(
    items: Iterable[T],
    count: int,
    work: Callable[[T, Progress], R],
    progress: Progress,
    end: Callable[[T, R | Death], None],
    *,
    copies: bool = False,
) -> None:
    """work(item, progress) for every item, in `count` processes of one thread; `end` hears each result here.

    `work` and what it gives must be picklable, and it may raise nothing. Each process takes the next
    item when it is free, so that `items` may be claimed as they are asked for. What `fedaudit.audit.case.sharing`
    keeps is kept from item to item of a process.
    `copies`: processes are copies of this one, so that `work` may hold anything; this one must compute on one
    thread, and is_copyable() be true. There are more of them while cores are free that others beside this
    process have given up. Other processes give theirs up when no item is left for them.
    """
    waiting, left, alive = iter(items), True, count
    working: dict[Connection, tuple[T, _Process[T, R]]] = {}
    context = children.get_context("fork") if copies else _context()
    spare = _spare if copies else SpareCores(context)
    idle = [_Process(work, context, spare) for _ in range(count)]

    def grow() -> bool:
        """One copy more, where a core is free."""
        nonlocal alive
        if not copies or spare is None or not spare.take():
            return False
        idle.append(_Process(work, context, spare))
        alive += 1
        return True

    def give_up_core() -> None:
        """Of a process that ended; those that copies began with are the caller's."""
        nonlocal alive
        if spare is not None and (alive > count or not copies):
            spare.give()
        alive -= 1

    try:
        while True:
            while left and (idle or grow()):
                try:
                    item = next(waiting)
                except StopIteration:
                    left = False
                    break
                process = idle.pop()
                working[process.pipe] = item, process
                process.pipe.send(item)
            while idle and not left:
                idle.pop().stop()
                give_up_core()
            if not working:
                return
            for ready in wait(list(working), PATIENCE if left and copies and spare is not None else None):
                pipe = cast(Connection, ready)
                item, process = working[pipe]
                try:
                    kind, *said = pipe.recv()
                except (EOFError, ConnectionResetError):
                    del working[pipe]
                    code = process.await_end()
                    if left:
                        idle.append(_Process(work, context, spare))
                    else:
                        give_up_core()
                    end(item, Death(code))
                    continue
                if kind == "progress":
                    progress(*said)
                else:
                    del working[pipe]
                    idle.append(process)
                    end(item, said[0])
    finally:
        for process in [*idle, *(p for _, p in working.values())]:
            process.stop()
        for _ in range(alive - count):  # where `end` has raised
            give_up_core()


def collect(items: Sequence[T], copies: int, work: Callable[[T, Progress], R]) -> list[R]:
    """work(item) for every item, in their order, in so many copies of this process; here where there is none.

    Raises UserError where one dies.
    """
    results: dict[T, R] = {}

    def end(item: T, result: R | Death) -> None:
        if isinstance(result, Death):
            raise UserError(str(result).capitalize(), hint="use fewer workers, or none (workers: 0)")
        results[item] = result

    if not copies or len(items) < 2:
        return [work(item, _silent) for item in items]
    side_by_side(items, min(copies, len(items)), work, _silent, end, copies=True)
    return [results[item] for item in items]


def _silent(phase: str, at: int, total: int) -> None:
    pass


def is_copyable() -> bool:
    """Whether a process can be copied with its memory, safely where it computes on one thread."""
    return sys.platform == "linux"


class _Process(Generic[T, R]):
    """A process that works on what it is sent. No daemon: the work may start a child of its own."""

    def __init__(self, work: Callable[[T, Progress], R], context: Any, spare: SpareCores | None) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, foreign.Carried(work), spare))
        self.process.start()
        theirs.close()

    def await_end(self) -> int:
        self.process.join()
        self.pipe.close()
        return int(self.process.exitcode or 0)

    def stop(self) -> None:
        """At once, which loses nothing where the work continues after a kill."""
        self.process.kill()
        self.await_end()


@cache
def _context() -> Any:
    """Processes come from a clean server: a fork of this one would inherit locked threads of OpenMP and hang.

    In a box there are no sockets, by which such a server is reached; each process starts anew.
    """
    if children.is_boxed() or "forkserver" not in multiprocessing.get_all_start_methods():
        return children.get_context("spawn")
    context: Any = children.get_context("forkserver")
    # What takes seconds to import is imported once
    context.set_forkserver_preload(["fedaudit.audit.phases.cells", "fedaudit.audit.phases.attack"])
    return context


def _serve(pipe: Connection, work: foreign.Carried, spare: SpareCores | None) -> None:
    global _spare
    _spare = spare
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too and stops us
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of libraries that are not loaded yet, and of children
    tune_allocator()
    progress = _Throttled(pipe)
    with sharing():
        while True:
            try:
                item = pipe.recv()
            except EOFError:  # the parent is gone, where the system did not end us with it
                return
            pipe.send(("end", work.value(item, progress)))


class _Throttled:
    """Progress through a pipe: the end of a phase always, steps between not more often than needed."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.last = pipe, 0.0

    def __call__(self, phase: str, at: int, total: int) -> None:
        now = time.monotonic()
        if at >= total or now - self.last >= SECONDS:
            self.last = now
            self.pipe.send(("progress", phase, at, total))
