"""Where client work runs: in this process, or in one worker process a core.

A *site* is an object with the model, the data and the methods that do the work; each worker has its
own copy. Work is called by method name and results come back in the order of the calls, however they
were scheduled, so one process or eight give the same numbers. Every site runs one thread, and this
process too while it has workers.

Why processes of one thread: on two cores they are 1.7 times faster than one process of two threads.
"""

import ctypes
import multiprocessing
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from mmap import mmap
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any, cast

import torch
from threadpoolctl import threadpool_limits

from fedaudit.fl.runtime import children, foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores, cores_of_rank, hide_unused, own_process
from fedaudit.fl.runtime.shared_pipe import SIZE, SharedPipe, keep_from_copies, make_portable, serialize

AHEAD = 8  # items that a worker may be ahead of what was asked for, in parts of what it gets at once
MOST_ITEMS, ENOUGH, ROOM = 16, 0.05, 16 << 20  # of a part: items, seconds of work, and bytes of answers


@contextmanager
def one_thread() -> Iterator[None]:
    """This process computes on one thread, so every sum is made in one order, and gets its threads back."""
    threads = torch.get_num_threads()
    with threadpool_limits(1):  # numpy's and scipy's; torch has its own number
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


class Workers(ABC):
    """Runs methods of a site. Use as a context manager, or call close().

    Until then this process runs one thread as well: the server's sums are then made in one order whatever the
    machine, and its threads do not wait, spinning, on cores that worker processes compute on.
    """

    count: int

    def __init__(self) -> None:
        self._threads: int | None = torch.get_num_threads()
        torch.set_num_threads(1)

    @abstractmethod
    def everywhere(self, name: str, *args: Any) -> None:
        """Call site.name(*args) on every site: a round's broadcast."""

    @abstractmethod
    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        """site.name(item) for each item, in order. At most a few results are held at a time."""

    def close(self) -> None:
        """Stop the worker processes, if any, and give this process its threads back."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)
            self._threads = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def can_fork() -> bool:
    """Whether a copy of this process computes as it does, which saves the copy's start and shares its memory.

    Once a process has computed a gradient, torch has a thread in it for each device that it sees, used or not. A
    copy has none of them, and computes no gradient. Everything that copies this process asks here.
    """
    return sys.platform == "linux" and not torch.accelerator.is_available()


def start(count: int, make_site: Callable[[], Any]) -> Workers:
    """`count` worker processes; with 0, and where no other process could make the site, the work runs here."""
    if count > 0 and (can_fork() or _can_travel(make_site)):
        return Pool(count, make_site)
    return InProcess(make_site)


def choose_context() -> BaseContext:
    """Of processes that compute for this one."""
    return children.get_context("fork") if can_fork() else children.get_clean_context((__name__,))


def _can_travel(make_site: Callable[[], Any]) -> bool:
    """Whether a process that begins with nothing can make it: not of what a notebook's own cells define."""
    try:
        with children.without_main():
            ForkingPickler.dumps(foreign.Carried(make_site))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def processes(wanted: int | str, device: str) -> int:
    """How many worker processes: as many as wanted, or, where that is left open, one a usable core; 0: none.

    CUDA gets none, since one process keeps it busy. Decided here for training, attacks and cells alike.
    """
    if isinstance(wanted, int):
        return wanted
    if device != "cpu":
        return 0
    if wanted == "torchrun":
        return cores_of_rank()
    return cores() if cores() > 1 else 0


class InProcess(Workers):
    """The reference: one site, here."""

    count = 1

    def __init__(self, make_site: Callable[[], Any]) -> None:
        super().__init__()
        tune_allocator()
        try:
            self._site = make_site()
        except BaseException:
            self.close()
            raise

    def everywhere(self, name: str, *args: Any) -> None:
        getattr(self._site, name)(*args)

    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        yield from map(getattr(self._site, name), items)


class Pool(Workers):
    """Persistent processes, forked where that can be, so that data is shared and not copied."""

    def __init__(self, count: int, make_site: Callable[[], Any]) -> None:
        super().__init__()
        self.count = count
        is_forked = can_fork()
        context: Any = choose_context()
        self._ends: list[SharedPipe] = []
        self._processes: list[multiprocessing.Process] = []
        # work -> seconds of an item, and bytes of its answer
        self._took: dict[str, tuple[float, float]] = {}
        for _ in range(count):
            memory = mmap(-1, SIZE) if is_forked else None
            ours, theirs = (SharedPipe(end, memory) for end in context.Pipe())
            inherited = [*self._ends, ours] if is_forked else []
            process = context.Process(
                target=serve, args=(theirs, foreign.Carried(make_site), inherited), daemon=True
            )
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def everywhere(self, name: str, *args: Any) -> None:
        data = serialize((name, [args]))
        for end in self._ends:
            with _describing_ends():
                end.send_serialized(data)
        answers = [_receive_answers(end)[0] for end in self._ends]  # all of them, before one is raised
        for answer in answers:
            _unwrap_answer(answer)

    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        # A worker gets its next items only after its last results were read: neither side can then
        # wait on a full pipe for the other.
        source, idle = enumerate(items), list(self._ends)
        left = len(items) if isinstance(items, Sized) else 0
        working: dict[SharedPipe, tuple[list[int], float]] = {}
        done: dict[int, tuple[bool, Any]] = {}
        position, selected = 0, 0
        exhausted = False
        try:
            while True:
                part = self._choose_part(name, left - selected)
                while idle and not exhausted and selected - position < AHEAD * part * self.count:
                    some = list(islice(source, part))
                    exhausted = len(some) < part
                    if not some:
                        break
                    end = idle.pop()
                    with _describing_ends():
                        end.send((name, [(item,) for _, item in some]))
                    working[end] = [number for number, _ in some], time.perf_counter()
                    selected += len(some)
                while position in done:
                    yield _unwrap_answer(done.pop(position))  # or raise, as a single process would
                    position += 1
                if not working:
                    if exhausted:
                        return
                    continue
                for ready in wait(list(working)):  # type: ignore[arg-type]  # they have a fileno()
                    end = cast(SharedPipe, ready)
                    numbers, began = working.pop(end)
                    answers = _receive_answers(end)  # to the first that failed
                    done.update(zip(numbers, answers, strict=False))
                    took = (time.perf_counter() - began, end.received)
                    self._took[name] = took[0] / len(answers), took[1] / len(answers)
                    idle.append(end)
        finally:
            for end in working:  # stopped early, or work failed elsewhere: leave no answer behind
                _receive_answers(end)

    def _choose_part(self, name: str, left: int) -> int:
        """Items that a worker gets at once, of so many that are left: some milliseconds of work.

        A worker then waits less often, and its caches are left alone. One item, where it is not known how many
        come or how long one takes; and fewer towards the end, so that no worker is the last for long.
        """
        seconds, size = self._took.get(name, (ENOUGH, 1))
        fit = min(MOST_ITEMS, int(ENOUGH / max(seconds, 1e-6)), ROOM // max(1, int(size)))
        return max(1, min(fit, left // (2 * self.count)))

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
        self._ends = []
        super().close()


@contextmanager
def _describing_ends() -> Iterator[None]:
    """Sending to a process that ended raises UserError."""
    try:
        yield
    except (BrokenPipeError, ConnectionResetError) as error:
        raise _describe_end() from error


def _receive_answers(end: SharedPipe) -> list[tuple[bool, Any]]:
    """Of each item (True, result), or of the last one (False, what the work or the process died of)."""
    try:
        return end.receive_each()
    except (EOFError, OSError):  # OSError where it ended in the middle of its answer
        return [(False, _describe_end())]


def _unwrap_answer(answer: tuple[bool, Any]) -> Any:
    ok, value = answer
    if not ok:
        raise value
    return value


def _describe_end() -> UserError:
    return UserError(
        "a worker process ended unexpectedly, probably for lack of memory",
        hint="the same command goes on from the last checkpoint; use fewer workers, or none (workers: 0)",
    )


def serve(end: SharedPipe, make_site: foreign.Carried, inherited: list[SharedPipe]) -> None:
    """Answers calls of a site's methods until the other end is closed; computes on one thread."""
    for other in inherited:  # a forked child holds the parent's ends: nobody would ever see them close
        other.close()
    keep_from_copies(end)
    own_process()
    hide_unused("cpu")
    children.die_with_parent()
    torch.set_num_threads(1)
    tune_allocator()
    site, unmade = None, None
    try:
        site = make_site.value()
    except Exception as error:  # it answers whatever is asked of the site  # noqa: BLE001
        unmade = error
    while True:
        try:
            name, jobs = end.receive()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            for args in jobs:
                try:
                    if unmade is not None:
                        raise unmade
                    end.write((True, getattr(site, name)(*args)))
                except KeyboardInterrupt:
                    return
                except BaseException as error:  # noqa: BLE001
                    end.write((False, make_portable(error)))
                    break
            end.flush()
        except BrokenPipeError:
            return


def tune_allocator() -> None:
    """Keep freed activations instead of unmapping them: glibc gives 1.8 MB buffers back to the system
    at every step and page-faults them in again, which costs 2-4 ms a step. Linux with glibc only."""
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # another C library: slower, not wrong
    for option, value in ((-3, 32 << 20), (-1, 2**31 - 1), (-2, 64 << 20)):
        mallopt(option, value)  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
