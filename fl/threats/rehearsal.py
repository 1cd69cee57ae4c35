"""What compromised clients of a round can try before they send: the rule, their own examples, their own training.

Only adversaries whose card knows "aggregator" get this. Honest clients' examples are never used.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Averages
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.kinds import TRAINED
from fedaudit.fl.model import State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.threats.adversary import JudgedModel, Trail
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
        return logits.argmax(1).cpu(), logits.double().softmax(1).gather(1, wanted[:, None])[
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


@dataclass(frozen=True, kw_only=True)
class RuleRehearsal(ABC):
    """One round's, of a server that will make its model of `averages`: what its rule makes of changes."""

    averages: Averages
    model: State  # the shared model of this round; empty where there is none
    weight: Callable[[Reply], float]

    def aggregate(
        self,
        heard: Mapping[int, Reply],
        changes: Mapping[int, Payload],
        draw: int = 0,
        trail: Trail | None = None,
    ) -> Payload:
        """Return what the server's rule would make of these changes.

        Its random draws are not known, and others are made for every number `draw`. After the rounds of a `trail`
        the rule begins with what it remembers of them, and with the model that they left; the trail goes on.
        """
        averages, trail = self.averages, trail or Trail()
        streams = Streams(averages.streams.key("adversary", "rule", averages.round, *([draw] if draw else [])))
        context = replace(averages.context("model"), streams=streams, round=averages.round + trail.rounds)
        if trail.rounds:
            context = replace(context, state=trail.state)
        made = averages.rule.begin(context)
        start: Payload = {}
        for k, change in changes.items():
            if {*TRAINED} & heard[k].message.keys() and change.keys() <= self.model.keys():
                start = {n: self.model[n].cpu().double() + trail.change.get(n, 0.0) for n in change}
            upload = {n: start[n] + v for n, v in change.items()} if start else change
            made.add(k, upload, self.weight(heard[k]), start)
        moved = {n: v - start[n] if start else v for n, v in made.value().items()}
        trail.rounds, trail.state = trail.rounds + 1, made.state or context.state
        trail.change = {n: trail.change[n] + v if n in trail.change else v for n, v in moved.items()}
        return moved

    @abstractmethod
    def judge(self, changes: Sequence[Payload]) -> list[JudgedModel]:
        """The shared model after each change, on examples of the compromised clients that nobody trains on."""

    @abstractmethod
    def train(self, clients: Sequence[int], change: Payload) -> dict[int, tuple[Message, Message]]:
        """Client -> what it would send after training on the model so changed, and what that is a change from."""

    def apply_change(self, change: Payload) -> State:
        """The shared model so changed."""
        moved = {
            k: (self.model[k].cpu().double() + v).to(self.model[k].dtype)
            for k, v in change.items()
            if k in self.model
        }
        return {k: v.cpu() for k, v in self.model.items()} | moved


@dataclass(frozen=True, kw_only=True)
class Rehearsal(RuleRehearsal):
    """Of a federation that runs: its workers hold the compromised clients' examples."""

    workers: Workers
    job: Callable[[int], Job]

    def judge(self, changes: Sequence[Payload]) -> list[JudgedModel]:
        return list(self.workers.map("judge", (self.apply_change(c) for c in changes)))

    def train(self, clients: Sequence[int], change: Payload) -> dict[int, tuple[Message, Message]]:
        model = self.apply_change(change)
        found = self.workers.map("imagine", ((self.job(k), model) for k in clients))
        return dict(zip(clients, found, strict=True))
