"""One end of a line between two processes of ours: values go through memory that both have, or through a pipe.

A message of one or several values that fits the shared memory is written into it, and where each of them ends is
sent; a larger one, and every one to a process that shares none, goes through the pipe. Each side waits for the
other's answer before it writes again, so one piece of memory serves both directions.
"""

import os
import pickle
import struct
from io import BytesIO
from itertools import pairwise
from mmap import mmap
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.runtime.errors import keep_place, quote_error

SIZE = 64 << 20  # bytes of shared memory, of which the system provides those that were written
MOST = 64  # values of a message
_END = struct.Struct("<q")  # of a value in a message; below 0 where it comes through the pipe


class SharedPipe:
    """Sends and receives values; `wait` of multiprocessing waits for it."""

    def __init__(self, end: Connection, memory: mmap | None = None) -> None:
        """`memory` is the other side's as well: inherited, where a process was forked."""
        self._end, self._memory = end, memory
        self._ends: list[int] = []  # of the values that were written and not sent
        self._room: mmap | BytesIO = BytesIO() if memory is None else memory
        self.received = 0  # bytes of the last message

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, value: Any) -> None:
        """Raises what pickle raises, and then nothing was sent."""
        self.write(value)
        self.flush()

    def write(self, value: Any) -> None:
        """Add a value to the next message; raises what pickle raises, and then it is not in it."""
        start = self._ends[-1] if self._ends else 0
        self._room.seek(start)
        try:
            _Pickler(self._room, protocol=5).dump(value)
        except ValueError:
            if self._memory is None or self._room is not self._memory:
                raise
            more = BytesIO(self._memory[:start])  # no room; what cannot be written at all raises below
            more.seek(start)
            _Pickler(more, protocol=5).dump(value)
            self._room = more
        self._ends.append(self._room.tell())

    def flush(self) -> None:
        """Send what was written."""
        ends, room = self._ends, self._room
        self._ends, self._room = [], BytesIO() if self._memory is None else self._memory
        if isinstance(room, BytesIO):
            self._send_in_pipe(room.getbuffer()[: ends[-1]], ends)
        else:
            self._send_ends(ends)

    def send_serialized(self, data: memoryview) -> None:
        """A value that was serialized once, for several processes."""
        if self._memory is None or len(data) > len(self._memory):
            self._send_in_pipe(data, [len(data)])
            return
        self._memory[: len(data)] = data
        self._send_ends([len(data)])

    def _send_in_pipe(self, data: memoryview, ends: list[int]) -> None:
        self._send_ends([-end for end in ends])
        self._end.send_bytes(data)

    def _send_ends(self, ends: list[int]) -> None:
        self._end.send_bytes(b"".join(map(_END.pack, ends)))

    def receive(self) -> Any:
        """A value that nothing else holds; raises EOFError where the other side is closed."""
        [value] = self.receive_each()
        return value

    def receive_each(self) -> list[Any]:
        """The values of a message, as `receive`."""
        ends = [end for (end,) in _END.iter_unpack(self._end.recv_bytes(MOST * _END.size))]
        self.received = abs(ends[-1])
        if ends[0] < 0:
            return _read_each(memoryview(self._end.recv_bytes()), [-end for end in ends])
        if self._memory is None:
            raise EOFError("a length without memory")
        with memoryview(self._memory) as view:
            return _read_each(view, ends)

    def close(self) -> None:
        self._end.close()


def _read_each(view: memoryview, ends: list[int]) -> list[Any]:
    return [pickle.loads(view[a:b]) for a, b in pairwise([0, *ends])]  # our own process wrote this


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
