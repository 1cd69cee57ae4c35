"""Where a replay listens to a run.

A run calls the tap wherever something leaves a party or gets noise. Usually nobody listens, and every value goes
on as it is. The differential replay (audit/noise_audit) listens to two runs on neighbouring data: it compares
what leaves, and puts the values of the first run in the place of those of the second, so that both go on alike.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release

Payload = dict[str, Tensor]
Message = dict[Kind, Payload]
AddNoise = Callable[[Payload], Payload]


class MessageTap:
    """Lets everything through. A listener overrides what it wants to hear or to replace."""

    def draw(self, round: int, answering: tuple[int, ...]) -> tuple[int, ...]:
        """The clients that take part in a round, in ascending order."""
        return answering

    def measure(self, round: int, client: int, value: float) -> float:
        """What is measured of a client's training: its loss, and the time that it took on the simulated clock."""
        return value

    def send(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        """A client's message before any protection changes it; `reference` is what it is a change from."""
        return message

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        """Values with noise, made by `add` from clean ones; a line like `line` accounts for them."""
        return add(clean)

    def average(self, round: int, model: Payload, lines: Sequence[Release]) -> Payload:
        """A round's new model after its central protection, which entered `lines`."""
        return model

    def carry(
        self, round: int, channel: Channel, sender: Party, seen_by: tuple[str, ...], message: Message
    ) -> Message:
        """A message as it leaves its sender, after all protections, for those in `seen_by`."""
        return message

    def enter(self, line: Release) -> None:
        """A line of the ledger."""

    def expect(self, line: Release) -> None:
        """A line that is entered when its round ends, and it is known what its noise adds up to."""


NOBODY = MessageTap()
_current: ContextVar[MessageTap] = ContextVar("tap", default=NOBODY)


def current() -> MessageTap:
    """Who listens now."""
    return _current.get()


@contextmanager
def listening(tap: MessageTap) -> Iterator[None]:
    """Runs in this context call `tap`; work of other processes is not heard."""
    token = _current.set(tap)
    try:
        yield
    finally:
        _current.reset(token)


def release(line: Release, clean: Payload, add: AddNoise) -> Payload:
    """`clean` with the noise that `add` puts on it. Every noised value of the protections that ship is made here.

    `line` is how the ledger accounts for it: between neighbouring data sets, `clean` moves by at most
    `line.sensitivity` in its norm, and `add` does nothing with data but add noise to it.
    """
    return current().add_noise(line, clean, add)
