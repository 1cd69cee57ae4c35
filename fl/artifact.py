"""Artifacts: what crossed a trust boundary, as the recorder keeps it and the attacks read it.

A message travels; an artifact is one kind (fl/kinds.py) of content inside a recorded message. Payloads are named
numpy arrays, never Python objects, so that reading an artifact can run nobody's code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.kinds import Kind

Array = NDArray[np.generic]


class Channel(StrEnum):
    """The direction a message travels."""

    DOWNLINK = "downlink"
    UPLINK = "uplink"
    RELAY = "relay"  # client to client, possibly through a mediator
    RELEASE = "release"  # to whoever gets the final model or generator
    OBSERVED = "observed"  # not sent: what the server sees of a client, as when its answer comes


FROM_CLIENTS = frozenset({Channel.UPLINK, Channel.RELAY})  # of what is sent there a client may be the maker


class Role(StrEnum):
    SERVER = "server"
    CLIENT = "client"
    MEDIATOR = "mediator"
    PUBLIC = "public"


@dataclass(frozen=True, order=True)
class Party:
    """One participant. `str(Party.client(3))` is "client/3"; parse() reads it back."""

    role: Role
    index: int | None = None

    @classmethod
    def client(cls, index: int) -> "Party":
        return cls(Role.CLIENT, index)

    @classmethod
    def parse(cls, text: str) -> "Party":
        """Read "client/3"; raises ValueError on anything else."""
        role, _, index = text.partition("/")
        try:
            return cls(Role(role), int(index) if index else None)
        except ValueError:
            raise ValueError(f"{text!r:.40} is no party") from None

    @property
    def number(self) -> int:
        """Which client it is; raises ValueError for a party without a number, such as the server."""
        if self.index is None:
            raise ValueError(f"{self} has no number: it is no single client")
        return self.index

    def __str__(self) -> str:
        return self.role.value if self.index is None else f"{self.role.value}/{self.index}"


def did_client_send(sender: Party, channel: Channel) -> bool:
    """Whether a client sent it to the server or to another client; what it publishes is made of what all sent."""
    return sender.role == Role.CLIENT and channel in FROM_CLIENTS


SERVER = Party(Role.SERVER)
PUBLIC = Party(Role.PUBLIC)


class Route(NamedTuple):
    """The way of one message: who sent it to whom, and who can read it."""

    round: int
    channel: Channel
    sender: Party
    receivers: tuple[str, ...]
    seen_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One kind of content of one recorded message.

    `seen_by` holds who could read it: roles for a broadcast ("client"), parties otherwise
    ("client/3", "server"). `origin` is "recorded" for what crossed the wire and "replayed" for
    what the auditor recomputed as a control; the report always tells the two apart.
    """

    id: str  # unique in a run: "r00003/client-7.uplink/local_prototypes"
    kind: Kind
    channel: Channel
    round: int
    sender: Party
    seen_by: tuple[str, ...]
    payload: Mapping[str, Array]
    origin: str = "recorded"
    note: Mapping[str, float | str] = field(default_factory=dict)  # replayed artifacts: {"n": 5}

    @property
    def from_client(self) -> bool:
        return did_client_send(self.sender, self.channel)

    @property
    def size_bytes(self) -> int:
        return sum(int(a.nbytes) for a in self.payload.values())
