"""A worker's side of a federation: the model, the data and the method, doing one client's work.

Each worker has one site; fl/runtime/workers.py calls its methods by name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client, Reply, evaluate
from fedaudit.fl.clients.time_model import clock
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.partition import Index
from fedaudit.fl.families.adapters import find_scale
from fedaudit.fl.families.layers import Layers, layers
from fedaudit.fl.families.public_data import list_public_rows
from fedaudit.fl.families.widths import Widths
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import ClientSide
from fedaudit.fl.model import Net, State, head_names
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.local import channels_last, normalise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Message


def build_site(
    method: ClientSide,
    holdings: Holdings,
    make: Callable[[], Net],
    device: str,
    private: PrivateTraining | None = None,
    compromise: Compromise | None = None,
) -> "Site":
    """A site with its own model; top-level, so that spawned processes can import it."""
    with torch.random.fork_rng(devices=[]):  # construction draws weights that nobody uses
        net = make()
    channels_last(net)
    return Site(method, holdings, net.to(device), device, private, compromise)


class Site:
    """A worker's copy of what client work needs; its methods are called by name through Workers."""

    def __init__(
        self,
        method: ClientSide,
        holdings: Holdings,
        net: Net,
        device: str,
        private: PrivateTraining | None = None,
        compromise: Compromise | None = None,
    ) -> None:
        self.method, self.holdings, self.net, self.device = method, holdings, net, device
        self.private = private
        self.compromise = compromise or Compromise()
        self.data, self.classes = holdings.data, len(holdings.data.classes)
        method.prepare(net, self.classes)
        self.trained = method.build_network(net)  # what clients work with
        self.message: Message = {}
        self.kept: Message = {}
        self.round = 0
        self.model: State = {}
        self.initial: State = {}
        self.before: State = {}

    def names(self, _: None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the parameters, and of those in the head."""
        return tuple(k for k, _ in self.net.named_parameters()), head_names(self.net)

    def layers(self, _: None) -> Layers:
        """Names of the parameters and buffers of each layer of what clients train."""
        return layers(self.trained)

    def widths(self, shares: tuple[float, ...]) -> Widths:
        """Narrow networks in the one that clients train."""
        return Widths.from_shares(self.trained, shares)

    def inspect(self, name: str) -> Any:
        """What a function of the method says of the network that clients train."""
        return getattr(self.method, name)(self.trained)

    def adapter_scale(self, _: None) -> float:
        """alpha / rank of the adapters in what clients train."""
        return find_scale(self.trained)

    def install(self, initial: State) -> None:
        """The model everybody knows before round 0."""
        self.initial = {k: v.to(self.device) for k, v in initial.items()}

    def keep(self, message: Message) -> None:
        """What every client was sent before the rounds, and has at hand in all of them."""
        self.kept = self._move_here(message)

    def recall(self, model: State) -> None:
        """The shared model of the round before, for an adversary that remembers it."""
        self.before = {k: v.to(self.device) for k, v in model.items()}

    def begin(self, round: int, message: Message) -> None:
        """A round's broadcast arrives."""
        self.round = round
        self.message = self.kept | self._move_here(message)

    def _move_here(self, message: Message) -> Message:
        return {k: {n: v.to(self.device) for n, v in p.items()} for k, p in message.items()}

    def client(self, job: tuple[int, Tree, Message]) -> Client:
        """One client with its data, ready to work."""
        k, memory, personal = job
        x, y = self.examples(self.data.train, self.holdings.parts[k])
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
                initial=self.initial,
                private=self.private,
                before=self.before,
                clock=None if times is None else clock(times, k, len(y)),
                workload=None if times is None else times.workload,
                records=torch.from_numpy(np.asarray(self.holdings.parts[k], dtype=np.int64)),
                read_public=self.read_public,
            )
        )
        return self.compromise.enter(received)

    def read_public(self, candidates: int) -> Tensor:
        """[m, ...] normalised examples that everybody has, with so many of each client's among them."""
        rows = list_public_rows(self.holdings.spare, self.holdings.parts, candidates)
        return self.examples(self.data.train, rows)[0]

    def train(self, job: tuple[int, Tree, Message]) -> Reply:
        """One client's work."""
        return self.work(("train", job))

    def root(self, _: None) -> Reply:
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
            initial=self.initial,
        )
        return self.method.train(self.method.receive(server))

    def pooled(self, job: tuple[str, int, State, Index | int]) -> Reply:
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

    def received(self, job: tuple[str, int, State, Tensor, Tensor]) -> Reply:
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
            initial=self.initial,
        )
        reply: Reply = getattr(self.method, name)(server)
        return reply

    def work(self, named: tuple[str, tuple[int, Tree, Message]]) -> Reply:
        """One client's work by another function of the method: (name, job)."""
        name, job = named
        client = self.client(job)
        reply: Reply = getattr(self.method, name)(client)
        if client.index not in self.compromise.clients:
            return reply
        return self.compromise.leave(client, reply, self.method.get_reference(client.message, reply.message))

    def examples(self, arrays: Arrays, index: Index) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(arrays.x[index]).to(self.device)
        return normalise(x, self.data), torch.from_numpy(arrays.y[index]).to(self.device)

    def serve(self, state: State) -> None:
        """The model to evaluate next."""
        self.model = {k: v.to(self.device) for k, v in state.items()}

    def score(self, index: Index) -> tuple[Tensor, Tensor, float, tuple[int, int], Tensor]:
        """[C] correct and [C] seen per class, the summed loss, how many the adversary turned of how many it would
        turn, and [n] which are correct, on the n test examples `index`.

        A client's own model may be of the network that clients train instead of the federation's.
        """
        x, y = self.examples(self.data.test, index)
        shared = self.model.keys() == self.net.state_dict().keys()
        net = self.net if shared else self.trained
        if net.task == "lm":
            return self._score_tokens(net, x, y)
        logits = evaluate(net, "forward", self.model, x)
        hit = logits.argmax(1) == y
        classes = self.classes
        loss = cross_entropy(logits, y, reduction="sum")
        right, seen = (torch.bincount(v, minlength=classes) for v in (y[hit], y))
        return right, seen, float(loss), self._count_conversions(net, x, y), hit.cpu()

    def _score_tokens(
        self, net: Net, x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor, float, tuple[int, int], Tensor]:
        """As score, of a language model: tokens in the place of examples, counted by their text's class.

        The loss is the sum over texts of the mean over a text's tokens, and a text is correct where most of its
        tokens are the likeliest.
        """
        graded = evaluate(net, "grade", self.model, x, batch=32).double()
        losses, right, seen = graded.unbind(1)
        nothing = torch.zeros(self.classes, dtype=torch.float64, device=y.device)
        by_class = [nothing.index_add(0, y, values).cpu() for values in (right, seen)]
        loss = float((losses / seen.clamp(min=1)).sum())
        return by_class[0], by_class[1], loss, (0, 0), (2 * right > seen).cpu()

    def judge(self, state: State) -> Tensor:
        """[3, C] of a shared model on the compromised clients' examples, for `Meeting.judge`."""
        rows = [self.holdings.parts[k] for k in sorted(self.compromise.clients)]
        x, y = self.examples(self.data.train, np.concatenate(rows))
        model = {k: v.to(self.device) for k, v in state.items()}
        net = self.net if model.keys() == self.net.state_dict().keys() else self.trained
        nothing = torch.zeros(self.classes, dtype=torch.float64, device=y.device)

        def add_up(images: Tensor, wanted: Tensor) -> Tensor:
            chances = evaluate(net, "forward", model, images).softmax(1).gather(1, wanted[:, None])[:, 0]
            return nothing.index_add(0, y, chances.double())

        adversary = self.compromise.adversary
        aim = adversary.aim(x, self.data.mean, self.data.std) if adversary else None
        turned = nothing if aim is None else add_up(aim[0], torch.full_like(y, aim[1]))
        seen = torch.bincount(y, minlength=self.classes).double()
        return torch.stack([add_up(x, y), seen, turned]).cpu()

    def imagine(self, job: tuple[tuple[int, Tree, Message], State]) -> tuple[Message, Message]:
        """What a client would send had the round begun with another model, and what that is a change from."""
        own, model = job
        begun = self.message
        self.message = begun | self._move_here({Kind.GLOBAL_MODEL: model})
        try:
            sent = self.work(("train", own)).message
            received = self.method.get_reference(self.message | self._move_here(own[2]), sent)
        finally:
            self.message = begun
        return sent, {k: {n: v.cpu() for n, v in p.items()} for k, p in received.items()}

    def _count_conversions(self, net: Net, x: Tensor, y: Tensor) -> tuple[int, int]:
        """Of other classes than the adversary's, the test examples it turns into that class, and all of them."""
        bad = self.compromise
        aim = bad.adversary.aim(x, self.data.mean, self.data.std) if bad.adversary and bad.clients else None
        if aim is None:
            return 0, 0
        changed, target = aim
        other = y != target
        answers = evaluate(net, "forward", self.model, changed[other]).argmax(1) if other.any() else y[other]
        return int((answers == target).sum()), int(other.sum())
