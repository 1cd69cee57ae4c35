"""Carriers: a vector as a message of some kind, through the wire with its protections, and back.

The auditor's canaries travel like any client's message: the same wire, the same protection objects,
the same named streams for their noise. Only the vector is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Payload, Protection, anew
from fedaudit.fl.wire.wire import Wire

Floats = NDArray[np.float64]
SPARE = 16  # coordinates without canaries, at each end
COUNTS = tuple(k for k in Kind if k.counted)
COUNT_BASE = 1000  # examples of each class before a canary is added


@dataclass(frozen=True)
class _Card:
    """What the wire reads of a method's card."""

    title: str
    uplink: tuple[Kind, ...]


@dataclass(frozen=True)
class Carrier:
    """Vectors [d] as payloads of one kind. Counts are whole numbers above COUNT_BASE.

    Models come as two tensors, so that a fault that acts on each tensor shows.
    """

    kind: Kind
    d: int

    @classmethod
    def of(cls, kind: Kind, canaries: int) -> "Carrier":
        """With room for that many canaries, each on a coordinate of its own."""
        return cls(kind, SPARE + canaries + SPARE)

    def canary(self, number: int, size: float) -> Floats:
        """[d] a canary's message."""
        vector = np.zeros(self.d)
        vector[SPARE + number] = size
        return vector

    def seats(self, vector: Floats) -> Floats:
        """[canaries] the coordinates that canaries own."""
        return vector[SPARE : self.d - SPARE]

    def spare(self, vector: Floats) -> Floats:
        """[2 * SPARE] those that nobody owns: noise alone, where the message was a canary's."""
        return np.concatenate([vector[:SPARE], vector[-SPARE:]])

    def payload(self, vector: Floats) -> Payload:
        if self.kind in COUNTS:
            counts = torch.from_numpy(np.round(vector)).long() + COUNT_BASE
            if self.kind == Kind.PROTO_COUNTS:
                return {"classes": torch.arange(self.d), "counts": counts}
            return {self.kind.counted: counts}
        x = torch.from_numpy(vector).float()
        if self.kind == Kind.LOCAL_PROTOTYPES:
            return {"classes": torch.arange(1), "features": x[None]}
        return {"weight": x[:-SPARE], "bias": x[-SPARE:]}

    def vector(self, payload: Payload) -> Floats:
        """[d] the inverse of payload(), of what was received."""
        if self.kind in COUNTS:
            found = payload[self.kind.counted].double() - COUNT_BASE
        elif self.kind == Kind.LOCAL_PROTOTYPES:
            found = payload["features"].double()[0]
        else:
            found = torch.cat([payload["weight"], payload["bias"]]).double()
        return np.asarray(found.numpy())

    def message(self, vector: Floats) -> Message:
        """The payload, with the counts that go with prototypes: some protections read them."""
        found: Message = {self.kind: self.payload(vector)}
        if self.kind == Kind.LOCAL_PROTOTYPES:
            many = torch.tensor([COUNT_BASE])
            found[Kind.PROTO_COUNTS] = {"classes": torch.arange(1), "counts": many}
        return found

    def reference(self) -> Message:
        """What the sender had received: a model of zeros."""
        if self.kind in UPDATES:
            return {Kind.GLOBAL_MODEL: self.payload(np.zeros(self.d))}
        return {}


@dataclass
class Channel:
    """A wire for one carrier, with a ledger of its own that `close` reads back."""

    carrier: Carrier
    protections: Sequence[Protection]
    streams: Streams
    _folder: TemporaryDirectory[str] = field(default_factory=TemporaryDirectory)

    def __post_init__(self) -> None:
        self._ledger = Log(Path(self._folder.name) / "ledger.jsonl")
        kinds = self.carrier.message(np.zeros(self.carrier.d))
        card = _Card("Audit", tuple(kinds))
        self._wire = Wire(card, self.streams, anew(self.protections), None, self._ledger)

    def send(self, round: int, client: int, vector: Floats) -> Floats:
        """[d] as the server receives it."""
        message, reference = self.carrier.message(vector), self.carrier.reference()
        received = self._wire.uplink(round, message, client, reference)
        assert received is not None  # canaries are finite
        return self.carrier.vector(received[self.carrier.kind])

    def average(self, round: int, total: Floats, senders: int) -> Floats:
        """[d] the model that uploads of that sum become, where one client is expected a round."""
        before, mean = self.carrier.payload(0 * total), self.carrier.payload(total / senders)
        return self.carrier.vector(self._wire.average(round, before, mean, senders, 1))

    def read(self, round: int, client: int, vector: Floats) -> Floats:
        """[d] one client's message as those read it for whom it is noised."""
        sent = self.send(round, client, vector)
        return self.average(round, sent, 1) if self._wire.central else sent

    @property
    def noised(self) -> Kind:
        """The kind that the noise is on: central noise is on the model that uploads become."""
        return Kind.GLOBAL_MODEL if self._wire.central else self.carrier.kind

    def end_round(self, round: int) -> None:
        self._wire.end_round(round)

    def close(self) -> list[Release]:
        """What the ledger says of all that was sent."""
        self._wire.end_round(0)  # noise that is counted for a sum is listed then
        self._ledger.close()
        found = read(self._ledger.path)
        self._folder.cleanup()
        return found


def noised_lines(carrier: Carrier, protections: Sequence[Protection], streams: Streams) -> int:
    """How many noised releases protections list for one message."""
    channel = Channel(carrier, protections, streams)
    channel.send(0, 0, np.zeros(carrier.d))
    return sum(r.noise_multiplier > 0 for r in channel.close())


def declared(carrier: Carrier, protections: Sequence[Protection], streams: Streams) -> Release | None:
    """The noised release that protections declare for one message of this kind; None for no noise."""
    channel = Channel(carrier, protections, streams)
    channel.read(0, 0, np.zeros(carrier.d))
    for release in channel.close():
        if release.noise_multiplier and release.kind == channel.noised.value:
            return release
    return None
