"""The contract of a selection: whom a server chooses for a round, and how it remembers that.

A method of rounds is combined with one, by its card or by `federation.selection`. Who answers of those that are
asked is availability's draw, and no choice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fedaudit.fl.clients.task_clock import TaskClock
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import State
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.wire.protection import Message
from fedaudit.fl.wire.watched import Rows
from fedaudit.fl.wire.wire import Wire


class Chosen(NamedTuple):
    """Who trains in a round, and what the server learnt in choosing: part of its state until the round ends."""

    clients: Sequence[int]
    learnt: Tree = {}


class Seen(Protocol):
    """The part of a federation that a server may go by; `parts` are granted to it, and the ledger says so."""

    parts: Rows
    initial: State
    wire: Wire
    workers: Workers
    clock: TaskClock

    @property
    def streams(self) -> Streams: ...


@dataclass(frozen=True)
class Choice:
    """What a server may go by when it chooses the clients of a round."""

    method: Any  # whose round it is: a RoundMethod
    federation: Seen
    state: Tree  # the server's; its entry "selection" is what the selection remembers
    round: int
    message: Message = field(default_factory=dict)  # what all that were asked were sent; empty before
    memory: Mapping[int, Tree] = field(default_factory=dict)  # the clients'

    def ask(self, work: str, clients: Sequence[int]) -> dict[int, Message]:
        """Return what each client answers, in their order; those whose answer is refused are not in it.

        `work` is a function of the method that a client carries out, or of its selection: "selection.report".
        """
        jobs = [(work, (k, self.memory.get(k, Tree()), Message())) for k in clients]
        heard: dict[int, Message] = {}
        for k, reply in zip(clients, self.federation.workers.map("work", jobs), strict=True):
            received = self.federation.wire.uplink(self.round, reply.message, k, self.message)
            if received is not None:
                heard[k] = received
        return heard


class Selection(Plugin):
    """Who is chosen in a round; here everybody.

    `is_blind` is never inherited: a class that writes choose_candidates() says there that no client's data decide
    who is asked, or it is not believed.
    """

    title: str = "Everybody"
    source: str = ""
    text: str = ""  # of the method that is FedAvg with this selection, as Card.text
    asks: tuple[Kind, ...] = ()  # what clients send to be chosen by, beside what the method has them send
    timed: bool = False  # chooses by the simulated clock
    is_blind: bool = True

    def describe(self) -> str:
        """One sentence for the report; empty where nobody is chosen."""
        return ""

    def start(self, choice: Choice) -> Tree:
        """Return what is remembered before round 0: the entry "selection" of the server's state."""
        return {}

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        """Return the clients that the server would ask, ascending; availability draws among them.

        Another choice than everybody earns no credit for sampling. Where clients' data decide it, who is
        asked tells of them, and the ledger has it as released in clear.
        """
        return range(len(choice.federation.parts))

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        """Choose which of the clients that answer train; the server may ask them something first."""
        return Chosen(answering)

    def remember(self, choice: Choice, candidates: Sequence[int], heard: Collection[int]) -> Tree:
        """Return what is remembered after a round of these candidates; `choice.state` has what was learnt."""
        kept: Tree = choice.state.get("selection", {})
        return kept

    @property
    def is_everybody(self) -> bool:
        """Whether nobody is chosen: who takes part is availability's draw alone."""
        hooks = ("choose_candidates", "select")
        return all(getattr(type(self), h) is getattr(Selection, h) for h in hooks)


def is_blind(selection: Selection) -> bool:
    """Whether the class that writes choose_candidates() says there that no client's data decide them."""
    writer = next(c for c in type(selection).__mro__ if "choose_candidates" in vars(c))
    return bool(vars(writer).get("is_blind", False))
