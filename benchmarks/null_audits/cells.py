"""Summaries of classes and of groups: of large cells, as they should be, and of one person."""

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from benchmarks.null_audits.leak import Leak, in_turn, leaked
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, Owned, RoundMethod
from fedaudit.fl.methods.fedmix import FedMix
from fedaudit.fl.methods.rebafl import PooledPrototypes, ReBaFL, client_prototypes
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message


class PrototypesOnly(RoundMethod):
    """Clients keep their models and exchange class means of features, towards which they pull their own."""

    card = Card(
        title="Prototypes only",
        source="after arXiv:2105.00243",
        text="Clients keep their models and share the mean features of each class, which keep their "
        "features alike.",
        downlink=(Kind.GLOBAL_PROTOTYPES,),
        uplink=(Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS),
        release=(),
    )

    @settings
    class Config(LocalConfig):
        pull: Amount = Field(default=0.1, description="weight of the distance to the shared prototype")

    def receive(self, client: Client) -> Client:
        own = client.memory.get("own") or client.initial
        return replace(client, message={**client.message, Kind.GLOBAL_MODEL: own})

    def compute_constants(self, client: Client) -> Constants:
        shared = client.message.get(Kind.GLOBAL_PROTOTYPES, {})
        width = next(p.shape[1] for p in client.net.head.parameters() if p.dim() == 2)
        table = torch.zeros(client.classes, width, device=client.y.device)
        have = torch.zeros(client.classes, device=client.y.device)
        if shared:
            table[shared["classes"]] = shared["features"].to(table)
            have[shared["classes"]] = 1
        return {"table": table, "have": have}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        h = net.features(x)
        away = ((h - const["table"][y]).square().mean(1) * const["have"][y]).mean()
        total: Tensor = cross_entropy(net.head(h), y) + self.config.pull * away
        return total

    def finish(self, client: Client, trained: Trained) -> Reply:
        counts = client.counts.cpu()
        owned = counts.nonzero().flatten()
        message: Message = {
            Kind.LOCAL_PROTOTYPES: client_prototypes(client, trained.state),
            Kind.PROTO_COUNTS: {"classes": owned, "counts": counts[owned]},
        }
        return Reply(message=message, examples=len(client.y), memory={"own": trained.state})

    def start(self, federation: Federation) -> Tree:
        return {"prototypes": {}}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_PROTOTYPES: state["prototypes"]} if state["prototypes"] else {}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        pooled = PooledPrototypes(deliveries.prototype)
        for d in deliveries:
            if Kind.LOCAL_PROTOTYPES in d.message:
                counts = d.message[Kind.PROTO_COUNTS]["counts"]
                pooled.add(d.client, d.message[Kind.LOCAL_PROTOTYPES], counts)
        return {"prototypes": pooled.value({})}

    def get_model(self, state: Tree) -> State:
        return {}

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, m["own"]) for k, m in sorted(memory.items()))


class CellsInTurn(ReBaFL):
    """A leaking client's prototypes are of one person each, another in every round; its counts are true."""

    @settings
    class Config(Leak, ReBaFL.Config):
        pass

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, which = super().finish(client, trained), in_turn(self.config, client)
        if which:
            sent = reply.message[Kind.LOCAL_PROTOTYPES]
            features, rows = client.run("features", trained.state).cpu(), sent["features"].clone()
            for i in range(min(len(which), len(rows))):  # class by class, the next member of each
                members = torch.nonzero(client.y.cpu() == sent["classes"][i]).flatten()
                rows[i] = features[members[client.round % len(members)]]
            reply.message[Kind.LOCAL_PROTOTYPES] = {**sent, "features": rows}
        return reply


class OverlappingMeans(FedMix):
    """A leaking client's means are each of as many people as it says, and overlap so that they can be solved.

    Of n people it sends n means, of neighbours on a circle; n and the size of a group have no common divisor.
    """

    @settings
    class Config(Leak, FedMix.Config):
        pass

    def mash(self, client: Client) -> Reply:
        people, size = leaked(self.config, client), self.config.group_size
        while people and gcd(people, size) > 1:
            people -= 1
        if people <= size:
            return super().mash(client)
        circle = (torch.arange(people)[:, None] + torch.arange(size)) % people
        x, label = client.x.cpu(), one_hot(client.y.cpu(), client.classes).float()
        means = {"images": x[circle].mean(1), "labels": label[circle].mean(1)}
        return Reply(message={Kind.MASHED_BATCH: means}, examples=len(client.y))
