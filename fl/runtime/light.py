"""Light processes: torch is put off until something computes with it.

Commands that read a finished run compute with numpy, but most of our modules name torch: in annotations, as the
base of a network, as a decorator. Importing it takes longer than all the rest of such a command. In a light
process a stand-in takes its place while modules are imported. Nothing computes with a stand-in: whatever calls
one, outside of the top level of a module, raises TorchNeeded, and the command begins again with torch itself. So
no result can depend on this, only the time.
"""

import contextlib
import ctypes
import inspect
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

PUT_OFF = ("torch", "torchvision")
AGAIN = 75  # exit code of a light process that needs torch
_DIE_WITH_PARENT = 1  # of prctl
_OPERATORS = "add sub mul truediv neg pow matmul invert iter lt le gt ge contains getitem enter"


class TorchNeeded(BaseException):
    """Something computes with torch; no `except Exception` may hide it."""


class StandIn(type):
    """What a name of torch stands for: a class, which can be a base, be annotated with and decorate."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if "path" not in vars(cls):  # a class of ours below one of torch
            raise TorchNeeded(f"{cls.__name__}.{name}")
        return stand_in(f"{vars(cls)['path']}.{name}")

    def __call__(cls, *args: Any, **options: Any) -> Any:
        caller = inspect.currentframe()
        if not _is_top_level(caller and caller.f_back):
            raise TorchNeeded(cls.__name__)
        return args[0] if len(args) == 1 and inspect.isfunction(args[0]) else cls


def _is_top_level(frame: FrameType | None) -> bool:
    """Whether a frame is that of a module or of the body of a class: an import is under way."""
    return frame is not None and not frame.f_code.co_flags & inspect.CO_OPTIMIZED


def _refuse(cls: type, *operands: object) -> Any:  # noqa: ARG001
    raise TorchNeeded(cls.__name__)


for _name in _OPERATORS.split():
    setattr(StandIn, f"__{_name}__", _refuse)


@cache
def stand_in(path: str) -> StandIn:
    """The class that stands for a name of torch, the same one each time."""
    return StandIn(path.rpartition(".")[2], (), {"path": path, "__module__": path.rpartition(".")[0]})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(f"{self.__name__}.{name}")


class Finder:
    """Finds torch and all modules below it as stand-ins; refuses torchvision, which does much on its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = name.partition(".")[0]
        if package not in PUT_OFF:
            return None
        if package != "torch":
            raise TorchNeeded(name)
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def is_torch_loaded() -> bool:
    """Whether this process has torch itself."""
    return "torch._C" in sys.modules


def begin() -> None:
    """Go on in a light child process. Where it turns out to need torch, this process goes on instead."""
    if is_torch_loaded() or not hasattr(os, "fork"):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        sys.meta_path.insert(0, Finder())
        return
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # the child has it as well, and says so
            _, status = os.waitpid(child, 0)
            break
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    if code != AGAIN:
        sys.exit(code)


def give_up() -> None:
    """End a light process: its parent does the work, with torch."""
    os._exit(AGAIN)
