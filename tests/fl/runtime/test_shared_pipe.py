"""A line between two processes: the same values through memory and pipe, and nothing of what cannot be sent."""

from mmap import mmap
from multiprocessing import Pipe
from typing import Any

import pytest
import torch

from fedaudit.fl.runtime.shared_pipe import SharedPipe

ROOM = 4096


class Pipes:
    """A connection that counts the bytes that go through it."""

    def __init__(self, end: Any) -> None:
        self.end, self.sent = end, 0

    def send_bytes(self, data: bytes) -> None:
        self.sent += len(data)
        self.end.send_bytes(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)


def make_line(room: int) -> tuple[SharedPipe, SharedPipe, Pipes]:
    memory = mmap(-1, room) if room else None
    left, right = Pipe()
    counted = Pipes(left)
    return SharedPipe(counted, memory), SharedPipe(right, memory), counted  # type: ignore[arg-type]


def state(numbers: int) -> dict[str, torch.Tensor]:
    return {"a": torch.arange(numbers, dtype=torch.float32), "b": torch.tensor([-0.0, float("nan")])}


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return (
        all(left[k].numpy().tobytes() == right[k].numpy().tobytes() for k in left) and left.keys() == right.keys()
    )


@pytest.mark.parametrize(("room", "numbers", "piped"), [(ROOM, 100, 8), (ROOM, 2000, 8000), (0, 100, 400)])
def test_a_value_that_fits_the_memory_does_not_go_through_the_pipe(room: int, numbers: int, piped: int) -> None:
    here, there, pipe = make_line(room)
    here.send(state(numbers))
    assert equal(there.receive(), state(numbers))
    assert pipe.sent == 8 if piped == 8 else pipe.sent > piped


def test_what_was_received_stays_when_the_next_message_arrives() -> None:
    here, there, _ = make_line(ROOM)
    here.send(state(100))
    first = there.receive()
    there.send({"a": torch.zeros(200)})
    here.receive()
    assert equal(first, state(100))
    first["a"] += 1  # and is the receiver's own


def test_a_value_that_cannot_be_written_sends_nothing() -> None:
    here, there, pipe = make_line(ROOM)
    with pytest.raises(Exception, match="pickle"):
        here.send([torch.zeros(3), lambda: None])
    assert pipe.sent == 0
    here.send("after")
    assert there.receive() == "after"


@pytest.mark.parametrize("room", [0, ROOM])
def test_values_of_one_message_come_apart_again_and_one_that_cannot_be_written_is_left_out(room: int) -> None:
    """Also where the memory has no room for all of them."""
    here, there, _ = make_line(room)
    for numbers in (3, 100, 5000, 7):
        here.write(state(numbers))
        with pytest.raises(Exception, match="pickle"):
            here.write([torch.zeros(3), lambda: None])
    here.flush()
    found = there.receive_each()
    assert len(found) == 4
    assert all(equal(of, state(n)) for of, n in zip(found, (3, 100, 5000, 7), strict=True))
    there.send("answer")
    assert here.receive() == "answer"


def test_a_closed_line_ends() -> None:
    here, there, _ = make_line(ROOM)
    here.close()
    with pytest.raises(EOFError):
        there.receive()
