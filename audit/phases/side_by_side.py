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


@dataclass(frozen=True)
class Death:
    """A process ended without an answer; `code` is its exit code, or minus a signal's number."""

    code: int

    def __str__(self) -> str:
        if self.code < 0:
            return f"its process was ended by {signal.Signals(-self.code).name}, probably for lack of memory"
        return f"its process ended with code {self.code}"


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
    thread, and is_copyable() be true.
    """
    waiting, left = iter(items), True
    working: dict[Connection, tuple[T, _Process[T, R]]] = {}
    context = children.get_context("fork") if copies else _context()
    idle = [_Process(work, context) for _ in range(count)]
    try:
        while True:
            while left and idle:
                try:
                    item = next(waiting)
                except StopIteration:
                    left = False
                    break
                process = idle.pop()
                working[process.pipe] = item, process
                process.pipe.send(item)
            if not working:
                return
            for ready in wait(list(working)):
                pipe = cast(Connection, ready)
                item, process = working[pipe]
                try:
                    kind, *said = pipe.recv()
                except (EOFError, ConnectionResetError):
                    del working[pipe]
                    code = process.await_end()
                    if left:
                        idle.append(_Process(work, context))
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


def collect(items: Sequence[T], copies: int, work: Callable[[T, Progress], R]) -> list[R]:
    """work(item) for every item, in their order, in so many copies of this process; here where these are fewer
    than two. Raises UserError where one dies."""
    results: dict[T, R] = {}

    def end(item: T, result: R | Death) -> None:
        if isinstance(result, Death):
            raise UserError(str(result).capitalize(), hint="use fewer workers, or none (workers: 0)")
        results[item] = result

    if min(copies, len(items)) < 2:
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

    def __init__(self, work: Callable[[T, Progress], R], context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, foreign.Carried(work)))
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


def _serve(pipe: Connection, work: foreign.Carried) -> None:
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
