"""The contract of adversaries: clients, or a server, that do not follow the protocol, and what they may do.

An adversary is one file of attacks/poisoning/. Its hooks run only for compromised clients: in the worker where a
client works (data, loss, correct, craft), and in the server's process between the workers and the wire (collude),
so that every method can be attacked without knowing of it. A malicious server compromises no client; its hooks
are called before it broadcasts (tamper) and when it answers a batch of split learning (answer). Streams of
honest clients never move; an adversary draws from client.generator("adversary") or the generator it is given.
Protections that clients are to apply themselves do not bind it (fl/wire/wire.py), and neither does DP-SGD.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel
from fedaudit.fl.training.local import Constants, Handle, Params, TrainingHooks
from fedaudit.fl.wire.protection import Message, Payload

__all__ = [
    "Adversary",
    "Card",
    "Client",
    "Colluded",
    "Constants",
    "Loss",
    "Meeting",
    "Message",
    "Params",
    "Payload",
    "Reply",
    "Trail",
    "Tree",
]

KEPT = "kept/"  # names of what a malicious server keeps from answer to answer, beside its part's weights
Loss = Callable[[Tensor, Tensor], Tensor]  # the method's loss of a batch, x [b, ...] and y [b]
MALICIOUS = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS)


@dataclass(frozen=True, kw_only=True)
class Card:
    """What an adversary is, for `fedaudit tools list adversaries` and for every finding about it."""

    title: str
    source: str  # paper and algorithm number
    does: str  # what happens to the model, in words of the reader
    remedy: str  # what to do about it
    threat: ThreatModel = (
        MALICIOUS  # knows "honest_updates": what the others send; "aggregator": the server's rule
    )
    aim: Aim = Aim.AVAILABILITY
    kinds: tuple[Kind, ...] = ()  # it forges one of these; none: whatever comes of its training
    needs: Literal["", "classes"] = ""  # of the task; "classes": each example is of one class


@dataclass
class Trail:
    """Rounds that attackers play ahead: how far the model went in them, and the state of the server then."""

    rounds: int = 0
    change: Payload = field(default_factory=dict)
    state: Tree = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JudgedModel:
    """What a shared model answers to examples that the compromised clients kept from their training."""

    classes: int
    labels: Tensor  # [n]
    answers: Tensor  # [n]
    chances: Tensor  # [n] probability of the label, float64
    turned: Tensor  # [n] whether it is answered as the adversary wants, once aim() has changed it
    turned_chances: Tensor  # [n] probability of that answer, float64


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """What colluding clients have before them when all replies of a round are in."""

    round: int
    own: Mapping[int, Message]  # what the compromised clients are about to send
    honest: Mapping[int, Message] | None  # what the others send; None unless the card knows "honest_updates"
    received: Mapping[int, Message]  # what each of these clients' updates is a change from
    before: Tree  # what collude() gave as its state the last time
    rng: torch.Generator
    parameters: tuple[str, ...]  # of the model; other arrays are buffers, which nobody forges
    # Of a card that knows "aggregator", else None. How the server would move the shared model by the clients'
    # changes; a number for which its rule's random draws are made anew; the rounds before, which go on by one;
    aggregate: Callable[[Mapping[int, Payload], int, Trail | None], Payload] | None
    # how it would move where this were everybody's change and the rule the plain mean;
    expect: Callable[[Payload], Payload] = dict
    # what shared models so changed answer to examples of the compromised clients that these do not train on; None
    # without such a model;
    judge: Callable[[Sequence[Payload]], list[JudgedModel]] | None = None
    # and what each compromised client of the round would send after training on it, and what that is relative to
    train: Callable[[Payload], Mapping[int, tuple[Message, Message]]] | None = None


@dataclass(frozen=True, kw_only=True)
class Colluded:
    """What the compromised clients send instead; whoever is missing sends its own."""

    messages: Mapping[int, Message]
    state: Tree = field(default_factory=dict)  # kept in the server's state, and so in checkpoints
    # of a family of attacks, the one that was chosen, as a config writes it, and those that were nearly as
    # harmful; the metrics say so as `sent` and `near`
    member: Mapping[str, Any] = field(default_factory=dict)
    near: Sequence[Mapping[str, Any]] = ()
    claims: Mapping[str, float] = field(
        default_factory=dict
    )  # of the shared model that comes of it, for the metrics


class Adversary(Plugin):
    """Subclasses write the hooks they need; those they leave change nothing."""

    card: Card
    remembers = False  # wants client.before, the shared model of the round before

    @settings
    class Config:
        clients: AtLeastZero | tuple[AtLeastZero, ...] | None = Field(
            default=None,
            description="how many clients are compromised, or which; null is one, unless `share` says more",
        )
        share: Share | None = Field(
            default=None, description="share of the clients that are compromised, rounded up; or say `clients`"
        )
        leaves: AtLeastOne | None = Field(
            default=None, description="round from which compromised clients follow the protocol again; null: none"
        )

        def __post_init__(self) -> None:
            if self.clients is not None and self.share is not None:
                raise UserError(
                    "adversary has both clients and share", hint="say how many are compromised by one of them"
                )

    @property
    def judges(self) -> bool:
        """Whether it tries what it could send; its clients then keep half of their examples to judge on."""
        return "aggregator" in self.card.threat.knows

    @property
    def colludes(self) -> bool:
        return type(self).collude is not Adversary.collude

    def data(self, client: Client) -> Client:
        """The client with other examples, after method.receive()."""
        return client

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        """The loss it trains on; `loss` is the method's."""
        return loss(x, y)

    def correct(self, client: Client, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        """The gradient it steps along, after the method's own correction."""
        return grads

    def late(self) -> float:
        """Simulated time for which a compromised client holds its answer back."""
        return 0.0

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        """What it sends; `received` is what its update is a change from."""
        return reply

    def tamper(self, round: int, message: Message, receivers: Sequence[int]) -> Message:
        """What a malicious server broadcasts instead; only called where the card's position is the server."""
        return message

    @property
    def answers(self) -> bool:
        return type(self).answer is not Adversary.answer

    def answer(self, server: Client, reply: Reply) -> Reply:
        """What a malicious server answers to a batch of split learning in place of `reply`.

        `server` has the activations x [b, ...], and in `start` the weights of its part and what it kept; `reply`
        has its weights after an honest step, to which it adds what it keeps, and the gradient [b, ...].
        """
        return reply

    def read_answered(self, activations: Tensor, own: Tensor, streams: Streams) -> Tensor:
        """Images [n, C, H, W] in [0, 1] that a server which answers so reads of activations [n, ...].

        `own` are its own images [m, C, H, W] in [0, 1], and `streams` those of the run.
        """
        raise NotImplementedError

    def aim(self, x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, int] | None:
        """Test examples x [n, ...], (pixels - mean) / std, changed so that the model takes them for a class, and
        that class; None: its aim is no such answer."""
        return None

    def collude(self, meeting: Meeting) -> Colluded:
        """What all of them send, knowing each other's replies. Needs the whole round in memory."""
        raise NotImplementedError


class Twisted(TrainingHooks):
    """A method's training as a compromised client does it, for the shared loop."""

    def __init__(self, method: TrainingHooks, adversary: Adversary, client: Client) -> None:
        self.config: Any = method.config
        self._method, self._adversary, self._client = method, adversary, client

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return self._adversary.loss(self._client, lambda x, y: self._method.loss(net, x, y, const), x, y)

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        grads = self._method.correct(grads, params, start, const)
        return self._adversary.correct(self._client, grads, params, start, const)

    def after_step(self, params: Params, const: Constants, rate: float) -> Params:
        self._client = replace(self._client, step=self._client.step + 1)
        return self._method.after_step(params, const, rate)

    def is_trainable(self, name: str) -> bool:
        return self._method.is_trainable(name)
