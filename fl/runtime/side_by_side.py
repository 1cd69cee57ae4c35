"""Side by side: pieces of work over processes that share the cores, and give the numbers that one process gives.

Unlike fl/runtime/workers.py, whose workers answer in order and fail together, a piece that takes its process
with it costs nobody else: the process is replaced, and what ended it is said. A piece may have pieces of its own:
its process waits for them and one of them has its core, while the others take cores that nobody uses.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar, cast

import torch

from fedaudit.fl.runtime import children, foreign, machine
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.shared_pipe import keep_from_copies, make_portable
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.runtime.workers import can_fork, tune_allocator

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[str, int, int], None]
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


class DeadPart(UserError):
    """The process of a part of some work ended, so that there is no result of the whole."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"a part of the work: {death}", hint="use fewer workers, or none (workers: 0)")
        self.death = death

    def __reduce__(self) -> tuple[object, ...]:
        return DeadPart, (self.death,)


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


_spare: SpareCores | None = None  # where this process shares cores with others


@contextmanager
def share_cores(number: int) -> Iterator[None]:
    """Inside, this process and its copies work on so many cores; on those it shares already, where it does."""
    global _spare
    before = _spare
    if before is None and number > 1:
        _spare = SpareCores(children.get_context("fork"), number - 1)
    try:
        yield
    finally:
        _spare = before


def can_copy() -> bool:
    """Whether this process shares cores and can be copied with its memory, where it computes on one thread."""
    return _spare is not None and can_fork()


def side_by_side(
    items: Iterable[T],
    work: Callable[[T, Progress], R],
    progress: Progress,
    end: Callable[[T, R | Death], None],
    *,
    processes: int = 0,
    preload: tuple[str, ...] = (),
) -> None:
    """work(item, progress) for every item, in processes of one thread; `end` hears each result here.

    `work` and what it gives must be picklable, and it may raise nothing. Each process takes the next
    item when it is free, so that `items` may be claimed as they are asked for. What `fedaudit.fl.runtime.sharing`
    keeps is kept from item to item of a process.

    Args:
        items: What is worked on.
        work: What is done with each.
        progress: Hears how far each is.
        end: Hears what each came to.
        processes: So many that begin with nothing of this one. 0: copies of this one, so that `work` may hold
            anything; one at first, which has the core of this process, and more while cores are free. This one
            must compute on one thread, and can_copy() be true. A process for which no item is left gives its
            core to others.
        preload: Modules that processes which begin with nothing import.
    """
    waiting, left, alive, own = iter(items), True, 0, processes or 1
    working: dict[Connection, tuple[T, _Process[T, R]]] = {}
    context = children.get_clean_context(preload) if processes else children.get_context("fork")
    spare = SpareCores(context) if processes else _spare
    assert spare is not None, "a copy takes its core from those that are shared"
    idle: list[_Process[T, R]] = []

    def grow() -> bool:
        """One process more, where a core is free."""
        nonlocal alive
        if alive >= own and (processes or not spare.take()):
            return False
        idle.append(_Process(work, context, spare))
        alive += 1
        return True

    def give_up_core() -> None:
        """Of a process that ended; this process needs its own again."""
        nonlocal alive
        if processes or alive > own:
            spare.give()
        alive -= 1

    try:
        while True:
            while left and (idle or grow()):
                try:
                    item = next(waiting)
                except StopIteration:
                    left = False
                    for _ in range(processes - alive):
                        spare.give()
                    break
                process = idle.pop()
                working[process.pipe] = item, process
                process.pipe.send(item)
            while idle and not left:
                idle.pop().stop()
                give_up_core()
            if not working:
                return
            for ready in wait(list(working), PATIENCE if left and not processes else None):
                pipe = cast(Connection, ready)
                item, process = working[pipe]
                try:
                    kind, *said = pipe.recv()
                except (EOFError, OSError):  # OSError where it ended in the middle of its answer
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
        for _ in range(alive - own):  # where `end` has raised
            give_up_core()


def collect(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    """work(item) for every item, in their order: in copies of this process where it shares cores, or here.

    Where the work is done changes no number, so `work` draws from streams of its item's own and leaves nothing
    behind but its result, which must be picklable.

    Raises what the first of them raises, and DeadPart where a process dies.
    """
    waiting = list(items)
    if len(waiting) < 2 or not can_copy():
        return [work(item) for item in waiting]
    results: dict[int, tuple[bool, Any]] = {}

    def attempt(number: int, _: Progress) -> tuple[bool, Any]:
        try:
            return True, bytes(ForkingPickler.dumps(work(waiting[number])))  # raises here what it cannot write
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return False, make_portable(error)

    def end(number: int, result: tuple[bool, Any] | Death) -> None:
        if isinstance(result, Death):
            raise DeadPart(result)
        came, value = result
        try:
            results[number] = came, ForkingPickler.loads(value) if came else value
        except Exception as error:  # noqa: BLE001
            results[number] = False, error

    side_by_side(range(len(waiting)), attempt, _silent, end)
    answers = [results[number] for number in range(len(waiting))]
    for came, error in answers:
        if not came:
            raise error
    return [result for _, result in answers]


def _silent(phase: str, at: int, total: int) -> None:
    pass


class _Process(Generic[T, R]):
    """A process that works on what it is sent. No daemon: the work may start a child of its own."""

    def __init__(self, work: Callable[[T, Progress], R], context: Any, spare: SpareCores) -> None:
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


def _serve(pipe: Connection, work: foreign.Carried, spare: SpareCores) -> None:
    global _spare
    _spare = spare
    keep_from_copies(pipe)
    machine.own_process()
    children.die_with_parent()
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
