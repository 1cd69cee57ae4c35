"""The run's own payload: what one of its clients sends, with every kind, array and row that it has.

The client with the most classes trains once more, on a few of its examples: what it then sends has the
shape of the run's messages at the least cost. Canaries travel as copies of that message, through a wire
with the run's protections and the run's law of participation, over the run's rounds and clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from fedaudit.audit.canaries.carrier import COUNT_BASE, COUNTS
from fedaudit.audit.controls.lab import Lab
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Payload, Protection, anew
from fedaudit.fl.wire.wire import Wire

EXAMPLES = 2  # of each class, for the training that shows the shape
COUNTED = ("counts", "count")


@dataclass(frozen=True)
class _Card:
    """What the wire reads of a method's card."""

    title: str
    uplink: tuple[Kind, ...]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One message of the run, and where canaries in its shape can stand."""

    message: Message
    reference: Message  # what the sender had received
    rounds: int
    clients: int
    law: Callable[[int | None], Drawn] = lambda _: Drawn()  # how a client comes to take part

    def still(self) -> tuple[Message, Message]:
        """A message that says nothing, and a reference of zeros: noise is read off it to the last digit.

        Whole numbers stay, and counts are large enough that no floor touches them.
        """
        message = {kind: _still(kind, payload) for kind, payload in self.message.items()}
        return message, {kind: _zeros(payload) for kind, payload in self.reference.items()}

    def numbers(self, kinds: Sequence[Kind]) -> int:
        """How many of these kinds a message holds."""
        return sum(v.numel() for k in kinds for v in self.message[k].values())


def shape_of(lab: Lab, law: Callable[[int | None], Drawn] = lambda _: Drawn()) -> Shape:
    """Raises what the method's own code raises, where its clients need more than a first model."""
    parts, y = lab.holdings.parts, lab.holdings.data.train.y
    client = max(range(len(parts)), key=lambda k: len(np.unique(y[parts[k]])))
    own = parts[client]
    few = np.concatenate([own[y[own] == c][:EXAMPLES] for c in np.unique(y[own])])
    small = replace(lab, private=None).holding(parts=[few if k == client else p for k, p in enumerate(parts)])
    received: Message = {Kind.GLOBAL_MODEL: lab.initial}
    message = small.trained(client, 0, received).message
    return Shape(
        message={k: v for k, v in message.items() if k in lab.method.card.uplink},
        reference=lab.method.reference(received, message),
        rounds=int(lab.method.config.rounds),
        clients=len(parts),
        law=law,
    )


class Passage:
    """A wire with the run's protections as they are before the first round, and a ledger of its own."""

    def __init__(
        self, shape: Shape, protections: Sequence[Protection], streams: Streams, *, listed: bool = True
    ) -> None:
        self._folder = TemporaryDirectory() if listed else None
        self._ledger = Log(Path(self._folder.name) / "ledger.jsonl") if self._folder else None
        card = _Card("Audit", tuple(shape.message))
        self._wire = Wire(card, streams, anew(protections), None, self._ledger, shape.law)
        self._clients = shape.clients

    def send(self, round: int, client: int, message: Message, reference: Message) -> Message:
        """As the server receives it; the arguments are left as they were."""
        copy = {kind: dict(payload) for kind, payload in message.items()}
        received = self._wire.uplink(round, copy, client, reference)
        assert received is not None  # canaries are finite
        return received

    def average(self, round: int, before: Payload, mean: Payload, delivered: int) -> Payload:
        """The model that the mean of a round's uploads becomes."""
        return self._wire.average(round, dict(before), dict(mean), delivered, self._clients)

    def close(self) -> list[Release]:
        """What the ledger says of all that was sent; nothing where it was not kept."""
        if self._folder is None or self._ledger is None:
            return []
        self._wire.end_round(0)  # noise that is counted for a sum is listed then
        self._ledger.close()
        found = read(self._ledger.path)
        self._folder.cleanup()
        return found


def up_to_noise(
    protections: Sequence[Protection], lines: Callable[[Sequence[Protection]], int]
) -> list[Protection]:
    """The protections without those after the last that adds noise, by the number of noised lines they list.

    What comes later works on what is already private, such as rounding: it is not the same for equal noise, and
    it can make the bound no worse. What hides single uploads stays.
    """
    last, before = 0, 0
    for many in range(1, len(protections) + 1):
        if (found := lines(protections[:many])) != before:
            last, before = many, found
    return [*protections[:last], *(p for p in protections[last:] if p.hides_single_uploads())]


def with_counts(shape: Shape, many: int) -> Shape:
    """The same message from a client that holds so many examples, wherever it says how many."""
    message = {
        kind: {k: torch.full_like(v, many) if k in COUNTED else v for k, v in payload.items()}
        for kind, payload in shape.message.items()
    }
    return replace(shape, message=message)


def _still(kind: Kind, payload: Payload) -> Payload:
    found = _zeros(payload)
    if kind in COUNTS:
        found |= {k: torch.full_like(payload[k], COUNT_BASE) for k in COUNTED if k in payload}
    return found


def _zeros(payload: Payload) -> dict[str, Tensor]:
    return {k: torch.zeros_like(v) if v.is_floating_point() else v for k, v in payload.items()}
