"""Where tests run what is made for an accelerator: on CUDA where there is some, else on a pretended device.

The pretended device `gpu` has tensors that lie in the processor's memory and cannot be mixed with its own. It
fails where CUDA would: tensors of two devices in one operation, `.numpy()` of a tensor on the device, a generator
of the processor that draws there. Numbers are the processor's. It says nothing of speed, of CUDA's own rounding
or of what cuDNN lacks.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

REAL = torch.cuda.is_available()
DEVICE = "cuda" if REAL else "gpu"
TOLERANCE = 1e-3 if REAL else 1e-4  # of weights after a few steps
AMPLIFIED = 1e-2  # on CUDA, where images are optimised with them, which makes more of its rounding

CPU = torch.device("cpu")
aten = torch.ops.aten
MOVES = {aten.copy_.default, aten._to_copy.default}
INDEXING = {  # CUDA takes indices of the processor
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}
READS = {  # which the host waits for
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.equal.default,
    aten.masked_select.default,
}
counts = Counter[str]()  # of what the pretended device was asked for; a kernel is an operation that is no view
NOT_NUMPY = (
    "can't convert gpu:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
)


@contextmanager
def accelerator() -> Iterator[None]:
    """Inside, DEVICE is there."""
    if REAL:
        yield
        return
    if not hasattr(torch, "gpu"):  # for good: with a device torch's engine starts threads in this process
        _setup_privateuseone_for_python_backend("gpu")
    with pytest.MonkeyPatch.context() as patch, _Accelerator():
        for make in (torch.tensor, torch.as_tensor):
            patch.setattr(torch, make.__name__, _move_afterwards(make))
        yield


FILES = (
    "tests/fl/test_accelerator.py",
    "tests/contracts/test_attacks_on_accelerator.py",
    "tests/audit/phases/test_device.py",
    "tests/fl/runtime/test_transfer.py",
)
OWN = os.environ.get("FEDAUDIT_ACCELERATOR") == "1"
# torch's engine counts devices once and starts threads for them, beside which nobody may fork
if OWN and not REAL:  # before anything computes on the processor: the engine counts when it first runs
    _setup_privateuseone_for_python_backend("gpu")
apart = pytest.mark.skipif(
    not OWN, reason="runs in a process of its own, which tests/fl/test_accelerator.py starts"
)


def run_apart(nightly: bool) -> None:
    """The tests that are marked `gpu` and `apart`, in one new process."""
    chosen = "gpu and nightly" if nightly else "gpu and not nightly"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "-m", chosen, *FILES]
    subprocess.run(command, env=os.environ | {"FEDAUDIT_ACCELERATOR": "1"}, check=True, timeout=3600)


class OnDevice(torch.Tensor):
    """A tensor that says it lies on gpu:0; `raw` holds its numbers."""

    __slots__ = ("raw",)  # a message with an array to which an attribute is tied would be refused
    __torch_function__ = torch._C._disabled_torch_function_impl
    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> "OnDevice":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(DEVICE, 0),
        )
        made.raw = raw
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.raw})"

    def tolist(self) -> Any:
        return self.raw.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(NOT_NUMPY)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(NOT_NUMPY)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _is_on_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "gpu"


def _list_leaves(args: Iterable[Any]) -> Iterator[Any]:
    """Of values and lists of them: all that operations take. torch's own trees take ten times as long."""
    for x in args:
        if isinstance(x, list | tuple):
            yield from _list_leaves(x)
        else:
            yield x


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return change(x)
    return type(x)(_map_tensors(change, y) for y in x) if isinstance(x, list | tuple) else x


def _take_raw(t: torch.Tensor) -> torch.Tensor:
    return t.raw if isinstance(t, OnDevice) else t


def _put_there(t: torch.Tensor) -> torch.Tensor:
    return t if isinstance(t, OnDevice) else OnDevice(t)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    flat = [*_list_leaves(args), *_list_leaves(kwargs.values())]
    there = [x for x in flat if isinstance(x, OnDevice)]
    if there and func not in MOVES | INDEXING:
        here = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, OnDevice)]
        if mixed := [tuple(x.shape) for x in here if x.dim()]:
            raise RuntimeError(f"{func}: expected all tensors on one device, but found gpu:0 and cpu {mixed}")
    for x in flat:
        if isinstance(x, torch.Generator) and there and x.device.type != "gpu":
            raise RuntimeError(f"{func}: expected a generator of gpu:0, but found one of cpu")
    wanted = kwargs.get("device")
    _count(func, args, there, wanted)
    plain = [_map_tensors(_take_raw, x) for x in args]
    options = {k: _map_tensors(_take_raw, x) for k, x in kwargs.items()}
    if "device" in options and _is_on_gpu(wanted):
        options["device"] = CPU
    options.pop("pin_memory", None)
    out = func(*plain, **options)
    if func is aten.copy_.default:
        return args[0]
    stays = _is_on_gpu(wanted) if wanted is not None else bool(there)
    if func is aten._to_copy.default and not stays:
        return out
    if not (stays or there):
        return out
    out = _map_tensors(_put_there, out)
    return return_and_correct_aliasing(func, args, kwargs, out) if there else out


def _count(func: Any, args: Any, there: list[OnDevice], wanted: Any) -> None:
    if func in MOVES:
        to = isinstance(args[0], OnDevice) if func is aten.copy_.default else _is_on_gpu(wanted)
        source = args[1] if func is aten.copy_.default else args[0]
        stays = to or (func is aten._to_copy.default and wanted is None and bool(there))
        if isinstance(source, OnDevice) and not stays:
            counts.update(["copies from it", "synchronisations"])
        elif to and not isinstance(source, OnDevice):
            counts.update(["copies to it"])
        elif there:
            counts.update(["kernels"])
    elif func in READS and there:
        counts.update(["kernels", "synchronisations"])
    elif (there or _is_on_gpu(wanted)) and not func.is_view:
        counts.update(["kernels"])


class _Accelerator(TorchDispatchMode):
    """Everything that asks for device `gpu` gets it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and what would keep it from that takes seconds to import

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _move_afterwards(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Of what builds its value below the dispatcher: built on the processor, then moved."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if _is_on_gpu(device):
            return make(*args, **kwargs).to(device)
        return make(*args, device=device, **kwargs)

    return made
