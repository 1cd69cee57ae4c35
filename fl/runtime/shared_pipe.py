"""One end of a line between two processes of ours: values go through memory that both have, or through a pipe.

A message that fits the shared memory is written into it and its length is sent; a larger one, and every one to a
process that shares none, goes through the pipe. Each side waits for the other's answer before it writes again, so
one piece of memory serves both directions.
"""

import os
import pickle
import struct
from io import BytesIO
from mmap import mmap
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.runtime.errors import keep_place, quote_error

SIZE = 64 << 20  # bytes of shared memory, of which the system provides those that were written
_LENGTH = struct.Struct("<q")
_IN_PIPE = -1


class SharedPipe:
    """Sends and receives values; `wait` of multiprocessing waits for it."""

    def __init__(self, end: Connection, memory: mmap | None = None) -> None:
        """`memory` is the other side's as well: inherited, where a process was forked."""
        self._end, self._memory = end, memory

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        """Raises what pickle raises, and then nothing was sent."""
        if self._memory is not None:
            self._memory.seek(0)
            try:
                _Pickler(self._memory, protocol=5).dump(value)
            except ValueError:  # no room; what cannot be written at all raises below
                pass
            else:
                self._end.send_bytes(_LENGTH.pack(self._memory.tell()))
                return
        self._send_in_pipe(serialize(value))

    def send_serialized(self, data: memoryview) -> None:
        """A value that was serialized once, for several processes."""
        if self._memory is None or len(data) > len(self._memory):
            self._send_in_pipe(data)
            return
        self._memory[: len(data)] = data
        self._end.send_bytes(_LENGTH.pack(len(data)))

    def _send_in_pipe(self, data: memoryview) -> None:
        self._end.send_bytes(_LENGTH.pack(_IN_PIPE))
        self._end.send_bytes(data)

    def receive(self) -> Any:
        """A value that nothing else holds; raises EOFError where the other side is closed."""
        (length,) = _LENGTH.unpack(self._end.recv_bytes(_LENGTH.size))
        if length == _IN_PIPE:
            return pickle.loads(self._end.recv_bytes())  # our own process wrote this
        if self._memory is None:
            raise EOFError("a length without memory")
        with memoryview(self._memory)[:length] as view:
            return pickle.loads(view)  # as above

    def close(self) -> None:
        self._end.close()


def serialize(value: Any) -> memoryview:
    """What `send_serialized` sends; raises what pickle raises."""
    buffer = BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getbuffer()


def make_portable(error: BaseException) -> BaseException:
    """An error that another process can read: some can be written and not read back.

    One that would end the process that it is raised in, as `sys.exit()` does, ends no other. It keeps the line of
    somebody's own that raised it.
    """
    keep_place(error)
    try:
        pickle.loads(pickle.dumps(error))  # our own process wrote this
        if isinstance(error, Exception):
            return error
    except Exception:  # noqa: BLE001
        pass
    portable = RuntimeError(f"{type(error).__name__}: {quote_error(error)}")
    keep_place(portable.with_traceback(error.__traceback__))
    return portable


def keep_from_copies(end: Connection | SharedPipe) -> None:
    """Close this process's end of a line in what it forks, so that whoever waits for it hears when it ends."""
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing is forked
        os.register_at_fork(after_in_child=end.close)


class _Pickler(pickle.Pickler):
    """Tensors travel as their bytes: smaller and quicker than torch's own reduction."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.detach().cpu().contiguous().numpy(),)
        return NotImplemented
