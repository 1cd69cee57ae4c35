"""The contract of a protection: what the wire does to a message before anyone else reads it.

Protections work with every method, because they sit on the wire. Each one says what the release is
worth in the ledger; the wire enters an un-noised release for every data-dependent kind that no
protection touched.
"""

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fedaudit.fl.artifact import Party
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin, is_shipped
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.private import PrivateTraining

Payload = dict[str, Tensor]
Message = dict[Kind, Payload]


@dataclass
class Sending:
    """One message on its way: protections change `message` and append to `releases`."""

    round: int
    sender: Party
    observers: tuple[str, ...]
    message: Message
    reference: Message  # what the sender had received this round: the base of an update
    rng: torch.Generator  # the stream of this protection, round and sender, for draws that need be no secret
    releases: list[Release] = field(default_factory=list)
    protected: set[Kind] = field(default_factory=set)  # kinds whose releases are already listed
    noise: NoiseSource = field(default_factory=NoiseSource)  # of this protection, round and sender, for noise
    memory: Tree = field(default_factory=dict)  # this protection's at the sender, which it may change


@dataclass
class Averaging:
    """A round's new model before anybody gets it: protections change `model` and `releases`."""

    round: int
    before: Payload  # the model that the round began with
    model: Payload  # the unweighted mean of what came back; `before` where nothing did
    delivered: int  # uploads in the mean, which only the server knows
    expected: float  # how many there are on average: public, as the law of participation is
    clients: int  # of the federation
    drawn: Drawn  # how the likeliest of them comes to take part
    rng: torch.Generator  # the stream of this protection and round
    releases: list[Release] = field(default_factory=list)
    noise: NoiseSource = field(default_factory=NoiseSource)  # of this protection and round


@dataclass(frozen=True)
class Uploads:
    """What an audit knows of the uploads that attacks succeeded on, for a protection to be fitted to them."""

    kinds: tuple[Kind, ...]  # that those attacks read
    classes: int  # of the data
    norms: Mapping[Kind, float]  # median L2 norm of a client's change, or of each row where there is one a class


class Protection(Plugin):
    """Subclasses set `title` and write apply() and describe(); `source` names a paper."""

    title: str
    source: str = ""
    kinds: tuple[Kind, ...] = ()  # what it acts on
    answers: frozenset[str] = (
        frozenset()
    )  # the aims of attacks (fl/threats/threat.py) that an audit tries it against
    # who applies it: a compromised client leaves out what is the client's
    enforced_by: Literal["client", "server"] = "client"
    central: bool = False  # average() does something: only methods that take plain means will do
    # the setting that is raised to protect more, where there is one
    strength: str = ""
    # what it does to noised numbers afterwards, where that cannot be undone: no canary then sees the noise
    after_noise: str = ""

    @abstractmethod
    def apply(self, sending: Sending) -> None: ...

    def limit(self, message: Message, reference: Message) -> Message:
        """What its clip alone leaves of a message: nothing of that is drawn, so an attacker can foresee it."""
        return message

    def average(self, averaging: Averaging) -> None:
        """What the server does to the mean of the uploads before it becomes the model."""

    @abstractmethod
    def describe(self) -> str:
        """One sentence for the report, with its parameters."""

    def noise_std(self, kind: Kind) -> float:
        """Standard deviation of the noise on each number of that kind; public, as its law is."""
        return 0.0

    def adds_noise_to(self, kind: Kind) -> bool:
        """Whether that kind, or a mean of it, gets noise: it may not show then whether its numbers are finite."""
        return self.noise_std(kind) > 0

    def training(self) -> PrivateTraining | None:
        """How clients have to train, where the protection acts before there is a message."""
        return None

    @classmethod
    def propose(cls, uploads: Uploads) -> dict[str, Any] | None:
        """Settings with which an audit tries it on such uploads; None: it does not act on them."""
        return {} if set(cls.kinds) & set(uploads.kinds) else None

    def refuses(self, uplink: Collection[Kind]) -> str:
        """Why it cannot work with a method whose clients send these kinds; empty where it can."""
        return ""

    def withholds(self) -> Collection[Kind]:
        """Kinds that are never sent with it."""
        return ()

    def remembers(self) -> bool:
        """Whether what a client sends depends on what it sent before."""
        return False

    def hides_single_uploads(self) -> bool:
        """True for secure aggregation: the server reads only sums."""
        return False

    def tells_members(self) -> bool:
        """Whether it takes that clients of a round know each other."""
        return False


def describe_protection(protection: Protection) -> str:
    """What a protection says of itself, and whose words these are where its code is somebody's own."""
    text = protection.describe()
    return text if is_shipped(protection) else f"unchecked words of its author: {text}"


def anew(protections: Sequence[Protection]) -> list[Protection]:
    """As they are before the first round, whatever else went through them; as they are where no copy can be."""
    try:
        return deepcopy(list(protections))
    except Exception:  # other people's code  # noqa: BLE001
        return list(protections)


def published_noise(protections: Iterable[Protection], kind: Kind) -> float:
    """Standard deviation of all their noise on each number of a kind, which an adversary knows."""
    return math.hypot(*(p.noise_std(kind) for p in protections))


def in_order(kind: Kind, before: Payload, payload: Payload) -> Payload:
    """A protected payload with its arrays in the order that they had before, which tells nothing.

    Raises UserError for an array that a protection has added: no method knows what to do with it.
    """
    if added := [name for name in payload if name not in before]:
        raise UserError(
            f"a protection added the array {added[0]!r} to {kind.value}, which the method did not send",
            hint="a protection changes arrays or leaves them out; send nothing besides",
        )
    found = {name: payload[name] for name in before if name in payload}
    return Coded(found, payload.size, payload.masks) if isinstance(payload, Coded) else found
