"""Interpreters that we start: nothing of the working directory is a module there, and no program runs twice.

A new interpreter looks for modules in its working directory first, and whoever reads a received folder may stand
in it. `multiprocessing` starts its children with `python -c`, so a file `multiprocessing.py` there would run.
It also imports the file of `__main__` in each of them, so that a program of a user's own would run again from its
first line unless it guards itself. Ours need nothing of that file, and do not see it.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType

SAFE = "PYTHONSAFEPATH"  # Python 3.11 and newer: no working directory on the path
BOXED = "FEDAUDIT_BOXED"  # set by whoever puts a process and its children into a box (audit/cli/confine.py)


def is_boxed() -> bool:
    """Whether this process may open no sockets, and so cannot reach a server of processes."""
    return os.environ.get(BOXED) == "1"


def die_with_parent() -> None:
    """A killed run must not leave processes behind that hold its files and its lock.

    Linux only; elsewhere one ends when it next reads from its parent.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


@contextmanager
def without_working_directory() -> Iterator[None]:
    """Interpreters that are started meanwhile leave the working directory out, and theirs too.

    The environment is then as it was: programs that our caller starts later may need theirs.
    """
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE]
        else:
            os.environ[SAFE] = before


def get_context(method: str) -> BaseContext:
    """A context of multiprocessing whose new interpreters leave the working directory and `__main__` out."""
    contexts = {"spawn": _SpawnContext, "forkserver": _ForkServerContext}
    if method not in contexts:
        return multiprocessing.get_context(method)
    if sys.platform != "win32":
        with without_working_directory():
            resource_tracker.ensure_running()  # an interpreter too, which a lock of this context would start
    return contexts[method]()


@cache
def get_clean_context(preload: tuple[str, ...]) -> BaseContext:
    """A context whose processes begin with nothing of this one, not even locks that its threads hold.

    They come from a server that imports `preload` once, which takes seconds. In a box there are no sockets, by
    which such a server is reached; each process starts anew.
    """
    if is_boxed() or "forkserver" not in multiprocessing.get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([*preload])
    return context


@contextmanager
def without_main() -> Iterator[None]:
    """Inside, `__main__` is nothing, as it is for what we start."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _WithoutMain(BaseProcess):
    """Starts its interpreter while `__main__` is nothing."""

    def start(self) -> None:
        with without_main(), without_working_directory():
            super().start()


class _SpawnProcess(_WithoutMain, SpawnProcess):
    pass


class _SpawnContext(SpawnContext):
    Process = _SpawnProcess


class _ForkServerProcess(_WithoutMain, ForkServerProcess):
    pass


class _ForkServerContext(ForkServerContext):
    Process = _ForkServerProcess
