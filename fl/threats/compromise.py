"""Compromised clients at work: where the hooks of an adversary are called, and what of a run it may touch.

A worker's site calls work(); a round passes its replies through a Tampering before they reach the wire. With
nobody compromised neither does anything.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.aggregation import aggregator
from fedaudit.fl.aggregation.aggregator import Averages
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.records import require_returned
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.runtime.transfer import fetch
from fedaudit.fl.runtime.tree import Tree, size_bytes
from fedaudit.fl.threats.adversary import Adversary, Meeting, Twisted
from fedaudit.fl.threats.forging import check_layout
from fedaudit.fl.threats.rehearsal import RuleRehearsal
from fedaudit.fl.threats.stealth import Stealth
from fedaudit.fl.threats.threat import Position
from fedaudit.fl.training.local import TrainingHooks
from fedaudit.fl.wire.protection import Message

ROUNDING = 1e-9  # .1 * 30 is a little more than 3


@dataclass(frozen=True)
class Compromise:
    """Who is compromised, and by what; the default is nobody."""

    adversary: Adversary | None = None
    clients: frozenset[int] = frozenset()

    @property
    def server(self) -> Adversary | None:
        """Set where it is the server that does not follow the protocol."""
        bad = self.adversary
        return bad if bad is not None and bad.card.threat.position == Position.SERVER else None

    def check(self, title: str, sent: Collection[Kind], collects: bool, task: Task) -> None:
        """Raises UserError where it could do nothing to a method of this task whose clients send these kinds."""
        if self.server is not None and self.server.answers and Kind.SMASHED not in sent:
            raise UserError(
                f"{self.server.card.title} answers batches of split learning, and clients of {title} send none",
                hint="choose method split_learning, split_u_shape or splitfed_v2",
            )
        if self.server is not None and not self.server.answers and not collects:
            raise UserError(
                f"{self.server.card.title} changes what a round begins with, and {title} has no such rounds",
                hint="choose a method whose server broadcasts a model in every round, such as fedavg",
            )
        if self.adversary is None or not self.clients:
            return
        card = self.adversary.card
        if card.needs == "classes" and not task.has_classes:
            raise UserError(
                f"{card.title} acts on classes, and the task of the data is {task!r}: {task.words}",
                hint="choose an adversary that changes updates, such as sign_flip",
                key="adversary",
            )
        if not sent:
            raise UserError(
                f"{card.title} acts through what a client sends, and clients of {title} send nothing",
                hint="choose another method",
            )
        if card.kinds and not set(card.kinds) & set(sent):
            raise UserError(
                f"{card.title} forges {', '.join(card.kinds)}, and clients of {title} send none of them",
                hint="choose an adversary that changes its data, such as label_flip, or another method",
            )
        if (self.adversary.colludes or self.adversary.remembers) and not collects:
            raise UserError(
                f"{card.title} needs a round whose replies come together, and {title} has none",
                hint="choose an adversary that works alone, such as sign_flip, or another method",
            )

    def acting(self, round: int) -> frozenset[int]:
        """Who does not follow the protocol in a round."""
        leaves = self.adversary.config.leaves if self.adversary is not None and self.clients else None
        return self.clients if leaves is None or round < leaves else frozenset()

    def divide(self, rows: Index, labels: NDArray[np.integer[Any]]) -> tuple[Index, Index]:
        """Of a compromised client's rows those it trains on, and those that an adversary with a judge judges on.

        `labels` are of all rows of the data. Of each class it is every second example, beginning with the first.
        """
        if self.adversary is None or not self.adversary.judges:
            return rows, rows[:0]
        by_class = np.argsort(labels[rows], kind="stable")
        sizes = np.unique(labels[rows], return_counts=True)[1]
        kept = np.zeros(len(rows), dtype=bool)
        kept[by_class] = np.concatenate([np.arange(n) % 2 == 1 for n in sizes] or [kept])
        return rows[~kept], rows[kept]

    def list_training_rows(self, client: int, round: int, rows: Index, labels: NDArray[np.integer[Any]]) -> Index:
        """What a client of these rows trains on in a round, as many as it has.

        What an adversary keeps to judge on is replaced by copies of the rest: it takes as many steps as others.
        """
        return np.resize(self.divide(rows, labels)[0], len(rows)) if client in self.acting(round) else rows

    def answer(self, server: Client, reply: Reply) -> Reply:
        """What the server answers to a batch of split learning."""
        return reply if self.server is None or not self.server.answers else self.server.answer(server, reply)

    def late(self, round: int, client: int) -> float:
        """Simulated time for which a client holds its answer back."""
        return self.adversary.late() if self.adversary is not None and client in self.acting(round) else 0.0

    def enter(self, client: Client) -> Client:
        """A client before it works: what it holds, and how it trains."""
        if self.adversary is None or client.index not in self.acting(client.round):
            return client
        return self.adversary.data(
            replace(client, private=None, twist=self._wrap, rank=sorted(self.clients).index(client.index))
        )

    def _wrap(self, method: TrainingHooks, client: Client) -> TrainingHooks:
        assert self.adversary is not None
        return Twisted(method, self.adversary, client)

    def leave(self, client: Client, reply: Reply, received: Message) -> Reply:
        """What it sends after its work; `received` is what its update is a change from."""
        if self.adversary is None or client.index not in self.acting(client.round):
            return reply
        here = {k: fetch(p) for k, p in received.items()}
        crafted = self.adversary.craft(client, reply, here)
        require_returned(self.adversary, Adversary, "craft", crafted)
        check_layout(self.adversary.card.title, reply.message, crafted.message)
        return crafted


def choose_compromised_clients(adversary: Adversary, clients: int, streams: Streams) -> frozenset[int]:
    """Who is compromised, of that many clients; more contain fewer. Nobody where the server is the adversary.

    Raises UserError for too many.
    """
    config, card = adversary.config, adversary.card
    wanted, share = config.clients, config.share
    if card.threat.position == Position.SERVER:
        if wanted is not None or share is not None or config.leaves is not None:
            raise UserError(
                f"{card.title} is done by the server, and adversary says which clients are compromised",
                hint="leave out clients, share and leaves",
                key="adversary.clients",
            )
        return frozenset()
    listed = wanted if isinstance(wanted, tuple) else ()
    count = ceil(share * clients - ROUNDING) if share is not None else 1 if wanted is None else wanted
    if any(k >= clients for k in listed) or (not listed and count != () and count > clients):
        raise UserError(
            f"adversary.clients must be among the {clients} clients, got {wanted}",
            hint="clients are numbered from 0",
            key="adversary.clients",
        )
    if isinstance(wanted, tuple):
        return frozenset(wanted)
    return frozenset(streams.numpy("adversary").permutation(clients)[:count].tolist())


@dataclass
class Tampering:
    """What the adversary does to one round's replies, and what it keeps of the round."""

    compromise: Compromise
    rehearsal: RuleRehearsal  # of this round: what an adversary that knows the rule may try
    before: Tree  # of the adversary, from the server's state
    lost: Callable[[int], bool]  # whose reply never arrives
    _state: Tree = field(default_factory=dict)
    _chosen: list[tuple[str, Any]] = field(default_factory=list)
    _stealth: Stealth = field(init=False)

    def __post_init__(self) -> None:
        self._stealth = Stealth(self.averages.parameters)

    @property
    def averages(self) -> Averages:
        return self.rehearsal.averages

    def replies(
        self, answered: Iterable[tuple[int, Reply]], base: Callable[[int, Message], Message]
    ) -> Iterator[tuple[int, Reply]]:
        """The replies as they leave for the wire; `base` says what a client's message is a change from."""
        for k, reply in self._tamper_replies(answered, base):
            if self.compromise.clients:
                self._stealth.add(k, reply.message, base(k, reply.message))
            yield k, reply

    def notes(self) -> list[tuple[str, Any]]:
        """For the round's metrics: where forged changes stand among the honest, and what was chosen."""
        ranks = self._stealth.ranks(self.compromise.acting(self.averages.round))
        return [*ranks.items(), *self._chosen]

    def _tamper_replies(
        self, answered: Iterable[tuple[int, Reply]], base: Callable[[int, Message], Message]
    ) -> Iterator[tuple[int, Reply]]:
        adversary, acting = self.compromise.adversary, self.compromise.acting(self.averages.round)
        self._state = self.before.get("state", {})
        if adversary is None or not adversary.colludes or not acting:
            yield from answered
            return
        held, size = list[tuple[int, Reply]](), 0
        for k, reply in answered:
            size += sum(size_bytes(p) for p in reply.message.values())
            if size > aggregator.MOST_BYTES:
                raise UserError(
                    f"{adversary.card.title} needs all replies of a round at once: {len(held) + 1} of them are "
                    f"more than {aggregator.MOST_BYTES >> 30} GiB",
                    hint="use an adversary that works alone, a smaller model, or fewer clients a round",
                )
            held.append((k, reply))
        heard = {k: reply for k, reply in held if not self.lost(k)}
        own = {k: r.message for k, r in heard.items() if k in acting}
        sent: Mapping[int, Message] = {}
        if own:
            knows, rehearsal = adversary.card.threat.knows, self.rehearsal
            tries = adversary.judges
            shared = tries and bool(wanted := {*self.averages.parameters}) and wanted <= rehearsal.model.keys()
            received = {k: base(k, r.message) for k, r in heard.items()}
            honest = {k: r.message for k, r in heard.items() if k not in own}
            colluded = adversary.collude(
                Meeting(
                    round=self.averages.round,
                    own=own,
                    honest=honest if "honest_updates" in knows else None,
                    received=received,
                    before=self._state,
                    rng=self.averages.streams.torch("adversary", self.averages.round),
                    parameters=tuple(self.averages.parameters),
                    aggregate=partial(rehearsal.aggregate, heard, received) if tries else None,
                    expect=partial(rehearsal.expect, heard, received),
                    judge=rehearsal.judge if shared else None,
                    train=partial(rehearsal.train, list(own)) if shared and rehearsal.trains else None,
                )
            )
            sent, self._state = colluded.messages, colluded.state
            if colluded.member:
                self._chosen = [("sent", dict(colluded.member)), ("near", [dict(m) for m in colluded.near])]
            if colluded.claims:
                self._chosen.append(("claims", dict(colluded.claims)))
        for k, message in sent.items():
            check_layout(adversary.card.title, heard[k].message, message)
        for k, reply in held:
            yield k, replace(reply, message=sent[k]) if k in sent else reply

    def entries(self) -> Tree:
        """What goes into the server's state: nothing, where the adversary keeps nothing."""
        adversary = self.compromise.adversary
        if adversary is None or not self.compromise.clients:
            return {}
        kept: Tree = {"state": self._state} if self._state else {}
        if adversary.remembers:
            kept["model"] = self.rehearsal.begun
        return {"adversary": kept} if kept else {}
