"""A worker's side of a federation: the model, the data and the method, doing one client's work.

Each worker has one site; fl/runtime/workers.py calls its methods by name.
"""

from collections.abc import Callable
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import find_reference
from fedaudit.fl.clients.time_model import clock
from fedaudit.fl.data.partition import Index
from fedaudit.fl.execution.site_evaluation import SiteEvaluation
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.layout import channels_last
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Message


def build_site(
    method: RoundMethod,
    holdings: Holdings,
    make: Callable[[], Net],
    device: str,
    private: PrivateTraining | None = None,
    compromise: Compromise | None = None,
) -> "Site":
    """A site with its own model; top-level, so that spawned processes can import it."""
    with seed_networks(0):  # construction draws weights that nobody uses
        net = make()
    channels_last(net)
    return Site(method, holdings, net.to(device), device, private, compromise)


class Site(SiteEvaluation):
    """A worker's copy of what client work needs, at work; its methods are called by name through Workers.

    What it has is of `SiteMemory`, how models are scored of `SiteEvaluation`.
    """

    def client(self, job: tuple[int, Tree, Message]) -> Client:
        """One client with its data, ready to work."""
        k, memory, personal = job
        rows = self.compromise.list_training_rows(k, self.round, self.holdings.parts[k], self.groups)
        x, y = self.examples(self.data.train, rows)
        own, times = self._move_here(personal), self.holdings.time_model
        received = self.method.receive(
            Client(
                index=k,
                round=self.round,
                x=x,
                y=y,
                classes=self.classes,
                message=self.message | own,
                memory=memory,
                net=self.trained,
                streams=self.holdings.streams,
                augment=self.data.augment,
                mean=self.data.mean,
                std=self.data.std,
                columns=self.data.columns,
                initial=self.initial,
                sends=self.method.card.trained,
                private=self.private,
                before=self.before,
                clock=None if times is None else clock(times, k, len(y)),
                workload=None if times is None else times.workload,
                records=torch.from_numpy(np.asarray(rows, dtype=np.int64)),
                read_public=self.read_public,
                leaves_on=self.leaves_on,
            )
        )
        return self.compromise.enter(received)

    def train(self, job: tuple[int, Tree, Message]) -> Reply:
        """One client's work."""
        return self.work(("train", job))

    def train_on_root(self, _: None) -> Reply:
        """What a client that held the server's own examples would send."""
        x, y = self.examples(self.data.train, self.holdings.spare)
        server = Client(
            index=-1,
            round=self.round,
            x=x,
            y=y,
            classes=self.classes,
            message=self.message,
            memory={},
            net=self.trained,
            streams=self.holdings.streams,
            augment=self.data.augment,
            mean=self.data.mean,
            std=self.data.std,
            columns=self.data.columns,
            initial=self.initial,
        )
        return self.method.train(self.method.receive(server))

    def work_on_rows(self, job: tuple[str, int, State, Index | int]) -> Reply:
        """Work that no client does: (function of the method, round, model, rows or the client who holds them)."""
        name, round, model, rows = job
        x, y = self.examples(self.data.train, self.holdings.parts[rows] if isinstance(rows, int) else rows)
        start = {k: v.to(self.device) for k, v in model.items()}
        server = Client(
            index=-1,
            round=round,
            x=x,
            y=y,
            classes=self.classes,
            message={Kind.GLOBAL_MODEL: start},
            memory={},
            net=self.net,
            streams=self.holdings.streams,
            augment=self.data.augment,
            initial=self.initial,
        )
        reply: Reply = getattr(self.method, name)(server)
        return reply

    def work_on_examples(self, job: tuple[str, int, State, Tensor, Tensor]) -> Reply:
        """Work of the server on normalised examples that clients sent: (function, round, model, x, y)."""
        name, round, model, x, y = job
        start = {k: v.to(self.device) for k, v in model.items()}
        server = Client(
            index=-1,
            round=round,
            x=x.to(self.device),
            y=y.to(self.device),
            classes=self.classes,
            message={Kind.GLOBAL_MODEL: start},
            memory={},
            net=self.net,
            streams=self.holdings.streams,
            mean=self.data.mean,
            std=self.data.std,
            columns=self.data.columns,
            initial=self.initial,
            read_public=self.read_public,
        )
        reply: Reply = getattr(self.method, name)(server)
        return self.compromise.answer(server, reply) if Kind.SMASHED_GRADIENT in reply.message else reply

    def work(self, named: tuple[str, tuple[int, Tree, Message]]) -> Reply:
        """One client's work by another function of the method or of what it has, "selection.ask": (name, job)."""
        name, job = named
        client = self.client(job)
        reply: Reply = attrgetter(name)(self.method)(client)
        if client.index not in self.compromise.clients:
            return reply
        return self.compromise.leave(client, reply, find_reference(client.message, reply.message))

    def imagine(self, job: tuple[tuple[int, Tree, Message], State]) -> tuple[Message, Message]:
        """What a client would send had the round begun with another model, and what that is a change from."""
        own, model = job
        begun = self.message
        self.message = begun | self._move_here({Kind.GLOBAL_MODEL: model})
        try:
            sent = self.work(("train", own)).message
            received = find_reference(self.message | self._move_here(own[2]), sent)
        finally:
            self.message = begun
        return sent, {k: {n: v.cpu() for n, v in p.items()} for k, p in received.items()}
