"""Interpreters that we start: nothing of the working directory is a module there, and no program runs twice.

A new interpreter looks for modules in its working directory first, and whoever reads a received folder may stand
in it. `multiprocessing` starts its children with `python -c`, so a file `multiprocessing.py` there would run.
It also imports the file of `__main__` in each of them, so that a program of a user's own would run again from its
first line unless it guards itself. Ours need nothing of that file, and do not see it.
"""

import multiprocessing
import os
import sys
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType

SAFE = "PYTHONSAFEPATH"  # Python 3.11 and newer: no working directory on the path
BOXED = "FEDAUDIT_BOXED"  # set by whoever puts a process and its children into a box (audit/cli/confine.py)


def is_boxed() -> bool:
    """Whether this process may open no sockets, and so cannot reach a server of processes."""
    return os.environ.get(BOXED) == "1"


def start_safely() -> None:
    """From now on interpreters that this process starts leave the working directory out, and theirs too."""
    os.environ[SAFE] = "1"


def get_context(method: str) -> BaseContext:
    """A context of multiprocessing whose new interpreters leave the working directory and `__main__` out."""
    start_safely()
    contexts = {"spawn": _SpawnContext, "forkserver": _ForkServerContext}
    return contexts[method]() if method in contexts else multiprocessing.get_context(method)


class _WithoutMain(BaseProcess):
    """Starts its interpreter while `__main__` is nothing."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _SpawnProcess(_WithoutMain, SpawnProcess):
    pass


class _SpawnContext(SpawnContext):
    Process = _SpawnProcess


class _ForkServerProcess(_WithoutMain, ForkServerProcess):
    pass


class _ForkServerContext(ForkServerContext):
    Process = _ForkServerProcess
