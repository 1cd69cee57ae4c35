"""What compromised clients of a round can try before they send: the server, their own examples and training.

The method's own server is asked, by its own rule, on a copy of its state, of uploads as protections clip them.
Left out: noise, and the fixed denominator of a central protection; and what a server trains after the mean
(fedavg_ft, on examples that no client knows; feddc_condense), for trying that takes a training each time. Only
adversaries whose card knows "aggregator" get this. Honest clients' examples are never used.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Averages, mean
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery, read_sample_count
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.tasks.classify import choose_classes
from fedaudit.fl.threats.adversary import JudgedModel, Trail
from fedaudit.fl.threats.forging import BASES, forge_message
from fedaudit.fl.wire.protect import ProtectionChain
from fedaudit.fl.wire.protection import Message, Payload

Job = tuple[int, Tree, Message]  # a client, its memory, what it alone was sent


def judge_model(
    forward: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, classes: int, aim: tuple[Tensor, int] | None
) -> JudgedModel:
    """What a model, `forward` to logits [n, C], answers to x, and to x as an adversary with an aim changes it."""

    def answer(images: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """[n] answers, and [n] probabilities of what is wanted."""
        if not len(y):
            return y.cpu(), torch.zeros(0, dtype=torch.float64)
        logits = forward(images)
        return choose_classes(logits).cpu(), logits.double().softmax(1).gather(1, wanted[:, None])[
            :, 0
        ].nan_to_num().cpu()

    answers, chances = answer(x, y)
    turned, turned_chances = torch.zeros_like(answers, dtype=torch.bool), torch.zeros_like(chances)
    if aim is not None:
        changed, turned_chances = answer(aim[0], torch.full_like(y, aim[1]))
        turned = changed == aim[1]
    return JudgedModel(
        classes=classes,
        labels=y.cpu(),
        answers=answers,
        chances=chances,
        turned=turned,
        turned_chances=turned_chances,
    )


class Server(Protocol):
    """The part of a method's server that makes its state of uploads."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree: ...

    def get_model(self, state: Tree) -> State: ...

    def broadcast(self, state: Tree) -> Message: ...


@dataclass(frozen=True, kw_only=True)
class RuleRehearsal(ABC):
    """One round's: what a server would make of changes, by the rule and the state of its own."""

    averages: Averages
    state: Tree = field(default_factory=dict)  # the server's, before this round

    def aggregate(
        self,
        heard: Mapping[int, Reply],
        received: Mapping[int, Message],
        changes: Mapping[int, Payload],
        draw: int = 0,
        trail: Trail | None = None,
    ) -> Payload:
        """Return how the shared model would move, were these the changes from what clients `received`.

        The rule's random draws are not known, and others are made for every number `draw`. After the rounds of a
        `trail` the server begins with what it remembers of them, and with the model that they left; the trail
        goes on.
        """
        averages, trail = self.averages, trail or Trail()
        streams = Streams(averages.streams.key("adversary", "rule", averages.round, *([draw] if draw else [])))
        before = trail.state if trail.rounds else self.state
        averages = replace(
            averages.begin_anew(),
            streams=streams,
            round=averages.round + trail.rounds,
            state=before.get("aggregator", averages.state),
        )
        moved, after = self._try(averages, before, heard, received, changes, trail.change)
        trail.rounds, trail.state = trail.rounds + 1, after | averages.entries()
        trail.change = {n: trail.change[n] + v if n in trail.change else v for n, v in moved.items()}
        return moved

    def expect(self, heard: Mapping[int, Reply], received: Mapping[int, Message], change: Payload) -> Payload:
        """Return how the shared model would move, were this everybody's change and the rule the plain mean."""
        averages = replace(self.averages.begin_anew(), rule=mean(), state={})
        return self._try(averages, self.state, heard, received, dict.fromkeys(heard, change), {})[0]

    def _try(
        self,
        averages: Averages,
        state: Tree,
        heard: Mapping[int, Reply],
        received: Mapping[int, Message],
        changes: Mapping[int, Payload],
        moved: Payload,
    ) -> tuple[Payload, Tree]:
        """serve() of these changes, from what clients received where the model has `moved` since."""
        sent = {}
        for k, change in changes.items():
            reply, start = heard[k], received[k].get(Kind.GLOBAL_MODEL, {})
            kind = next(kind for kind in BASES if kind in reply.message)
            begun = {Kind.GLOBAL_MODEL: {n: v + moved[n] if n in moved else v for n, v in start.items()}}
            forged = forge_message(reply.message, received[k] | begun, change, kind)
            sent[k] = replace(reply, message=self.limit(k, forged, received[k] | begun))
        made, after = self.serve(averages, state, sent)
        names = next(iter(changes.values()), {})
        return {n: made[n] if n in made else torch.zeros_like(v) for n, v in names.items()}, after

    def limit(self, client: int, message: Message, reference: Message) -> Message:
        """What protections leave of what a client sends, as far as can be foreseen."""
        return message

    @abstractmethod
    def serve(self, averages: Averages, state: Tree, sent: Mapping[int, Reply]) -> tuple[Payload, Tree]:
        """How the shared model moves where these replies come to a server of this state, and its state then."""

    @property
    @abstractmethod
    def model(self) -> State:
        """The shared model of this round; empty where there is none."""

    @property
    def begun(self) -> State:
        """What clients begin this round with."""
        return self.model

    @abstractmethod
    def judge(self, changes: Sequence[Payload]) -> list[JudgedModel]:
        """The shared model after each change, on examples of the compromised clients that nobody trains on."""

    @abstractmethod
    def train(self, clients: Sequence[int], change: Payload) -> dict[int, tuple[Message, Message]]:
        """Client -> what it would send after training on the model so changed, and what that is a change from."""

    @property
    def trains(self) -> bool:
        """Whether train() says what clients would send; not where each begins with a model of its own."""
        return True

    def apply_change(self, change: Payload) -> State:
        """The shared model so changed."""
        model = self.model
        moved = {k: (model[k].cpu().double() + v).to(model[k].dtype) for k, v in change.items() if k in model}
        return {k: v.cpu() for k, v in model.items()} | moved


@dataclass(frozen=True, kw_only=True)
class Rehearsal(RuleRehearsal):
    """Of a federation that runs: its workers hold the compromised clients' examples, and its method serves."""

    workers: Workers
    job: Callable[[int], Job]
    server: Server
    broadcast: Message  # what this round begins with
    protections: ProtectionChain

    @property
    def model(self) -> State:
        return self.server.get_model(self.state)

    def limit(self, client: int, message: Message, reference: Message) -> Message:
        return self.protections.limit(self.averages.round, client, message, reference)

    def serve(self, averages: Averages, state: Tree, sent: Mapping[int, Reply]) -> tuple[Payload, Tree]:
        arriving = (
            Delivery(client=k, message=r.message, examples=read_sample_count(r.message, r.examples))
            for k, r in sent.items()
        )
        after = self.server.combine(deepcopy(state), Deliveries(arriving, averages), averages.round)
        old, new = self._find_shared(state), self._find_shared(after)
        return {n: new[n].cpu().double() - v.cpu().double() for n, v in old.items() if n in new}, after

    def _find_shared(self, state: Tree) -> State:
        """The shared model, or where nobody is given one, what clients are sent of it."""
        return self.server.get_model(state) or self.server.broadcast(state).get(Kind.GLOBAL_MODEL, {})

    @property
    def begun(self) -> State:
        return self.broadcast.get(Kind.GLOBAL_MODEL, {}) or self.model

    def judge(self, changes: Sequence[Payload]) -> list[JudgedModel]:
        return list(self.workers.map("judge", (self.apply_change(c) for c in changes)))

    @property
    def trains(self) -> bool:
        return self.model.keys() <= self.broadcast.get(Kind.GLOBAL_MODEL, {}).keys()

    def train(self, clients: Sequence[int], change: Payload) -> dict[int, tuple[Message, Message]]:
        model = self.apply_change(change)
        found = self.workers.map("imagine", ((self.job(k), model) for k in clients))
        return dict(zip(clients, found, strict=True))
