"""Split learning: clients run the first layers, the server the others, and a batch crosses the wire twice.

Vepakomma, Gupta, Swedish, Raskar. arXiv:1812.00564. With f_a the client's part and s_b the server's,

    z = f_a(x)  --smashed (z, y)-->  L = CE(s_b(z), y),  b <- b - eta dL/db
    a <- a - eta (dz/da)^T dL/dz  <--smashed_gradient dL/dz--

A client that keeps the last layers as well (the U-shape, ibid. fig. 2) keeps its labels: the server answers with
what its own part makes of z, the client sends the gradient of its loss by that, and gets dL/dz. One exchange is
E ceil(n / B) messages each way in a visit, two in the U-shape.

Batches, their order and the optimiser are those of local training elsewhere (fl/training/local.py), the optimiser
of each party for itself: `grad_clip` bounds the gradient of each part. A client keeps its place, its batch and
its optimiser while it waits; the server keeps its part. Who cannot be heard in a round is not asked: a visit that
broke off would leave half of itself in the server's part. One whose message is not finite is undone at the
server.

`false_batches` is what a client of SplitGuard does (Erdogan, Kupcu, Cicek. 2021, arXiv:2108.09052): it sends some
batches with false labels, every label moved to another class, and leaves its layers as they are after these. What
it is sent tells whether the server heeds labels (attacks/evaluation/split_detectors.py).

`nopeek` adds the distance correlation of examples and activations to the client's loss (Vepakomma, Singh, Gupta,
Raskar. NoPeek. ICDMW 2020, arXiv:2008.09161, eq. 2); it makes activations tell less and promises nothing.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.time_model import Workload
from fedaudit.fl.families.carried_optimiser import MOMENTS, step
from fedaudit.fl.families.cutting import Cut, cut_network
from fedaudit.fl.families.distance_correlation import distance_correlation
from fedaudit.fl.families.drawn_batches import draw_batch
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.adversary import KEPT, Adversary
from fedaudit.fl.training.local import Constants, Handle, Params, TrainingHooks, bind, count_epochs, snapshot
from fedaudit.fl.wire.protection import Message, Payload

BATCHES = frozenset({Kind.SMASHED, Kind.SMASHED_GRADIENT})


@dataclass
class SplitVisit:
    """A client's training of one round, batch by batch, as the server sees it."""

    client: int
    given: Message  # what the client began with
    server: State  # the server's part, and its optimiser's moments
    memory: Tree = field(default_factory=dict)  # the client's own
    arriving: Message = field(default_factory=dict)  # what the client is sent next
    reply: Reply | None = None  # what it ended with
    is_rejected: bool = False
    held: Tensor | None = None  # the batch that the server has passed on, until its gradient comes
    losses: list[float] = field(default_factory=list)
    down: Message = field(default_factory=dict)  # sizes of what crossed, where a clock runs
    up: Message = field(default_factory=dict)

    @property
    def weights(self) -> State:
        """The server's part without moments, with what a malicious server keeps."""
        return {k: v for k, v in self.server.items() if not k.startswith(MOMENTS)}


class SplittingWork(RoundMethod):
    """What runs in workers: a client's steps with its part of the network, and the server's with the other."""

    keeps_head = False
    trained_kind = Kind.LOCAL_MODEL  # as which a client's part leaves it after a visit

    @settings
    class Config(LocalConfig):
        cut: AtLeastOne = Field(
            default=1,
            description="layers with weights that clients hold, from the input on; the others are the server's",
        )
        server_optimiser: Literal["visit", "batch"] = Field(
            default="visit",
            description="how long the server's optimiser keeps its moments: a client's visit, or a batch, as in "
            "the code of SplitFed's authors",
        )
        nopeek: Amount = Field(
            default=0.0,
            description="weight of the distance correlation of examples and activations in the client's loss; 0 "
            "is none",
        )
        false_batches: BelowOne = Field(
            default=0.0,
            description="share of batches that clients send with false labels and do not learn from, to see "
            "whether the server heeds labels; 0 is none",
        )

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        """Cross-entropy of the classes: a part of a network has no loss of its own."""
        return cross_entropy(net(x), y)

    # The server's work, in a worker ----------------------------------------------------------

    def serve(self, server: Client) -> Reply:
        """The server's step on a batch whose labels it has."""
        part, params, moments = self._bind_server(server)
        z = server.x.requires_grad_()
        loss = self.loss(cast(Handle, part), z, server.y, {})
        gradient, *grads = torch.autograd.grad(loss, [z, *params.values()], allow_unused=True)
        assert gradient is not None
        return self._step_server(server, params, grads, moments, gradient, float(loss.detach()))

    def pass_on(self, server: Client) -> Reply:
        """What the server's part makes of a batch whose labels the client keeps."""
        part, _, _ = self._bind_server(server)
        with torch.no_grad(), _keeping_statistics(server.net):  # they move when the batch comes back
            made = part(server.x)
        return Reply(message={Kind.SMASHED: {"activations": made.cpu()}}, examples=0)

    def serve_back(self, server: Client) -> Reply:
        """The server's step on a batch, by the gradient [b, ...] of what it had made of it: it has no labels."""
        part, params, moments = self._bind_server(server)
        z = server.x.requires_grad_()
        objective = (part(z) * server.y).sum()  # whose slope by what was passed on is what arrived
        gradient, *grads = torch.autograd.grad(objective, [z, *params.values()], allow_unused=True)
        assert gradient is not None
        return self._step_server(server, params, grads, moments, gradient)

    def _bind_server(self, server: Client) -> tuple[nn.Module, Params, State]:
        """The server's part with its weights, those weights, and the moments of its optimiser."""
        moments = {k: v for k, v in server.start.items() if k.startswith(MOMENTS)}
        bind(server.net, {k: v for k, v in server.start.items() if not k.startswith((MOMENTS, KEPT))})
        server.net.train()
        part = self.cut(server.net).middle
        return part.module, _list_trained(server.net, part.names), moments

    def _step_server(
        self,
        server: Client,
        params: Params,
        grads: Sequence[Tensor | None],
        moments: State,
        gradient: Tensor,
        loss: float | None = None,
    ) -> Reply:
        rate = self.config.lr * self.config.lr_decay**server.round
        moments = step(self, params, grads, {}, moments, rate)
        kept = moments if self.config.server_optimiser == "visit" else {}
        weights = {k: v for k, v in snapshot(server.net).items() if k in server.start}
        return Reply(
            message={
                Kind.GLOBAL_MODEL: weights | kept,
                Kind.SMASHED_GRADIENT: {"gradient": gradient.detach().cpu().contiguous()},
            },
            examples=0,
            stats={} if loss is None else {"loss": loss},
        )

    # Clients ---------------------------------------------------------------------------------

    def cut(self, net: Net) -> Cut:
        return cut_network(net, self.config.cut, self.keeps_head)

    def list_client_names(self, net: Net) -> frozenset[str]:
        """Names of the weights and buffers that clients train."""
        cut = self.cut(net)
        return cut.body.names | (cut.head.names if cut.head is not None else frozenset())

    def exchange(self, client: Client) -> Reply:
        """Step along the gradient that arrived and send what comes next; at the end, the trained part."""
        visit: Tree = dict(client.memory) or self._begin(client)
        bind(client.net, {k: v.to(client.x.device) for k, v in visit["part"].items()})
        client.net.train()
        stats = {}
        if Kind.SMASHED in client.message:
            message, stats["loss"] = self._send_gradient(client, visit)
            return Reply(message=message, examples=len(client.y), memory=visit, stats=stats)
        if Kind.SMASHED_GRADIENT in client.message:
            self._descend(client, visit)
        if not draw_batch(client, visit, self.config, count_epochs(self.config, len(client.y))):
            return self._end(client, visit)
        with torch.no_grad(), _keeping_statistics(client.net):  # they move when the gradient arrives
            z = self.cut(client.net).body.module(visit["x"].to(client.x.device))
        payload: Payload = {"activations": z.cpu().contiguous()}
        if not self.keeps_head:
            payload["labels"] = visit["y"]
        return Reply(message={Kind.SMASHED: payload}, examples=len(client.y), memory=visit)

    def get_given_part(self, client: Client) -> State:
        """The part that a client begins with: as it was sent, or that of the model that everybody knows."""
        given = client.message.get(Kind.GLOBAL_MODEL) or client.message.get(Kind.RELAY_MODEL)
        return given or self._pick_own(client, client.initial)

    def _pick_own(self, client: Client, state: State) -> State:
        names = self.list_client_names(client.net)
        return {k: v for k, v in state.items() if k in names}

    def _begin(self, client: Client) -> Tree:
        order = client.generator("batches")
        part = {k: v.cpu() for k, v in self.get_given_part(client).items()}
        return {
            "part": part,
            "moments": {},
            "draws": order.get_state(),
            "rows": torch.zeros(0),
            "place": 0,
            "epoch": 0,
            "coins": client.generator("false_batches").get_state(),
        }

    def _send_gradient(self, client: Client, visit: Tree) -> tuple[Message, float]:
        """The gradient of the loss by what the server made of the batch, which is sent, and by the head."""
        head = self.cut(client.net).head
        assert head is not None
        h = client.message[Kind.SMASHED]["activations"].detach().requires_grad_()
        params = _list_trained(client.net, head.names)
        loss = self.loss(cast(Handle, head.module), h, visit["y"].to(h.device), {})
        gradient, *grads = torch.autograd.grad(loss, [h, *params.values()])
        visit["head"] = {k: g.cpu() for k, g in zip(params, grads, strict=True)}
        return {Kind.SMASHED_GRADIENT: {"gradient": gradient.cpu().contiguous()}}, float(loss.detach())

    def _descend(self, client: Client, visit: Tree) -> None:
        """The client's step, by the gradient of what it sent."""
        if visit.get("is_false"):
            return
        cut, device = self.cut(client.net), client.x.device
        gradient = client.message[Kind.SMASHED_GRADIENT]["gradient"]
        x = visit["x"].to(device)
        own = _list_trained(client.net, cut.body.names)
        z = cut.body.module(x)
        objective = (z * gradient).sum()  # whose slope by z is what arrived
        if self.config.nopeek:
            objective = objective + self.config.nopeek * distance_correlation(x, z)
        grads = torch.autograd.grad(objective, list(own.values()), allow_unused=True) if own else ()
        of = dict(zip(own, grads, strict=True)) | {k: g.to(device) for k, g in visit.pop("head", {}).items()}
        params: Params = {k: p for k, p in client.net.named_parameters() if k in of}
        hooks: TrainingHooks = self if client.twist is None else client.twist(self, client)
        rate = self.config.lr * self.config.lr_decay**client.round
        start = {k: v.to(device) for k, v in self.get_given_part(client).items()}
        visit["moments"] = step(hooks, params, [of[k] for k in params], start, visit["moments"], rate)
        visit["part"] = self._pick_own(client, snapshot(client.net))

    def _end(self, client: Client, visit: Tree) -> Reply:
        return Reply(message=self._send_part(client, visit["part"]), examples=len(client.y), memory=visit)

    def _send_part(self, client: Client, part: State) -> Message:
        message: Message = {self.trained_kind: part}
        if self.config.weighting == "samples" and Kind.NUM_EXAMPLES in self.card.uplink:
            message[Kind.NUM_EXAMPLES] = count_of(len(client.y))
        return message

    def train(self, client: Client) -> Reply:
        """A visit whose server is here too: what an auditor plays a client with.

        The server's part is that of the first model, which alone is known. The reply holds what the client would
        send of all its examples at once before it trains, and its part after training.
        """
        given = self._pick_own(client, client.initial) | self.get_given_part(client)
        whole = {k: v.to(client.x.device) for k, v in (client.initial | given).items()}
        bind(client.net, whole)
        client.net.train()
        with torch.no_grad():
            z = self.cut(client.net).body.module(client.x)
        payload: Payload = {"activations": z.cpu().contiguous()}
        if not self.keeps_head:
            payload["labels"] = client.y.cpu()
        trained = client.train(self, {}, start=whole)
        message: Message = {
            Kind.SMASHED: payload,
            **self._send_part(client, self._pick_own(client, trained.state)),
        }
        return Reply(message=message, examples=len(client.y), stats={"train_loss": trained.loss})


class Splitting(SplittingWork):
    """The loop: a subclass says in `run_visits` in which order clients visit, with which parts, what follows."""

    copies_server = False  # whether clients train a copy of the server's part each

    def open(self, federation: Federation) -> None:
        super().open(federation)
        adversary = federation.compromise.adversary
        if adversary is not None and type(adversary).loss is not Adversary.loss:
            raise UserError(
                f"{adversary.card.title} changes the loss that a client trains on, and in {self.card.title} the "
                "server computes it",
                hint="choose an adversary that changes its data or what it sends, such as label_flip",
                key="adversary",
            )
        if federation.compromise.server is not None and self.copies_server:
            raise UserError(
                f"{federation.compromise.server.card.title} needs one server's part for all clients, and in "
                f"{self.card.title} each trains a copy of it",
                hint="choose method split_learning, split_u_shape or splitfed_v2",
                key="adversary",
            )
        if self.config.false_batches and self.keeps_head:
            raise UserError(
                f"method.false_batches: clients of {self.card.title} send no labels",
                hint="leave it out, or choose split_learning",
                key="method.false_batches",
            )
        # The server knows the architecture, and with it whose each weight is
        [self.client_names] = federation.workers.map("inspect", ["list_client_names"])

    def pick_client_part(self, model: State) -> State:
        return {k: v for k, v in model.items() if k in self.client_names}

    def pick_server_part(self, state: Tree) -> State:
        """The server's part of the model, with what a malicious server keeps."""
        own: State = {k: v for k, v in state["model"].items() if k not in self.client_names}
        kept: State = state.get("kept", {})
        return own | kept

    def join_parts(self, state: Tree, part: State) -> Tree:
        """The server's state with new weights of the model, and what a malicious server keeps among them."""
        kept = {k: v for k, v in part.items() if k.startswith(KEPT)}
        model = {k: part.get(k, v) for k, v in state["model"].items()}
        return state | {"model": model} | ({"kept": kept} if kept else {})

    def carry(self, t: int, visits: Sequence[SplitVisit], federation: Federation) -> list[SplitVisit]:
        """Carry visits out side by side, batch by batch; returns those that came to their end, in their order."""
        working = list(visits)
        while working:
            jobs = [("exchange", (v.client, v.memory, v.given | v.arriving)) for v in working]
            for visit, reply in zip(working, federation.workers.map("work", jobs), strict=True):
                self._take_up(t, visit, reply, federation)
            working = [v for v in working if v.reply is None and not v.is_rejected]
            self._answer(t, working, federation)
        federation.tally.rejected += sum(v.is_rejected for v in visits)
        return [v for v in visits if not v.is_rejected]

    def _take_up(self, t: int, visit: SplitVisit, reply: Reply, federation: Federation) -> None:
        """Send what a client answered with; what it ended with is kept until the visits are over."""
        visit.memory = reply.memory or {}
        if "loss" in reply.stats:
            visit.losses.append(reply.stats["loss"])
        if not BATCHES & reply.message.keys():
            visit.reply = reply
            return
        sent = federation.wire.uplink(t, reply.message, visit.client, {})
        visit.is_rejected, visit.arriving = sent is None, sent or {}
        if federation.clock.model is not None:
            _measure(visit.up, visit.arriving)

    def _answer(self, t: int, visits: Sequence[SplitVisit], federation: Federation) -> None:
        """Have the server work on what arrived of each client, and send what comes of it."""
        jobs = []
        for v in visits:
            sent = v.arriving.get(Kind.SMASHED)
            if sent is None:  # the gradient of what it has passed on
                assert v.held is not None
                jobs.append(("serve_back", t, v.server, v.held, v.arriving[Kind.SMASHED_GRADIENT]["gradient"]))
            elif "labels" in sent:
                jobs.append(("serve", t, v.server, sent["activations"], sent["labels"]))
            else:
                v.held = sent["activations"]
                jobs.append(("pass_on", t, v.server, v.held, v.held[:0]))
        for visit, reply in zip(visits, federation.workers.map("work_on_examples", jobs), strict=True):
            message = dict(reply.message)
            visit.server = message.pop(Kind.GLOBAL_MODEL, visit.server)
            if "loss" in reply.stats:
                visit.losses.append(reply.stats["loss"])
            visit.arriving = federation.wire.downlink(t, message, visit.client)
            if federation.clock.model is not None:
                _measure(visit.down, visit.arriving)

    def close(self, t: int, visit: SplitVisit, received: Message, federation: Federation) -> None:
        """Note a visit that came to its end: what it measured, and how long it took."""
        assert visit.reply is not None
        k, n, tally = visit.client, visit.reply.examples, federation.tally
        stats = {"train_loss": sum(visit.losses) / max(1, len(visit.losses)), **visit.reply.stats}
        tally.heard.add(k)
        tally.add(received, n, stats)
        down, up = visit.given | visit.down, received | visit.up

        def cost(workload: Workload) -> float:
            return self.estimate_cost(k, received, n, workload)

        tally.times[k] = federation.clock.measure(t, k, down, up, n, cost)
        if federation.clock.model is not None:
            federation.wire.observe(t, k, tally.times[k], down, up)

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        selected, answering = federation.participate(t, range(len(federation.parts)))
        federation.tally = tally = Tally(selected=len(selected))
        tally.waited, notes = federation.attendance.ask_all(t, answering)
        tally.notes |= notes
        heard = [k for k in answering if federation.attendance.is_heard(t, k)]
        tally.lost = len(answering) - len(heard)
        return self.run_visits(t, heard, selected, state, federation)

    @abstractmethod
    def run_visits(
        self, t: int, clients: Sequence[int], selected: Sequence[int], state: Tree, federation: Federation
    ) -> Tree:
        """One round over the clients that will be heard: the new server state."""


@contextmanager
def _keeping_statistics(net: nn.Module) -> Iterator[None]:
    """Running statistics of a network are as they were."""
    before = {k: b.detach().clone() for k, b in net.named_buffers()}
    yield
    with torch.no_grad():
        for k, b in net.named_buffers():
            b.copy_(before[k])


def _list_trained(net: Net, names: Collection[str]) -> Params:
    """The parameters of these names; those that the network itself has frozen stay as they are."""
    return {k: p for k, p in net.named_parameters() if k in names and p.requires_grad}


def _measure(sizes: Message, message: Message) -> None:
    """Add the shapes of a message, without its numbers, to those before."""
    for kind, payload in message.items():
        own = sizes.setdefault(kind, {})
        own |= {f"{len(own)}/{name}": torch.empty_like(v, device="meta") for name, v in payload.items()}
