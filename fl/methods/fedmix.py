"""FedMix: clients train on blends of their examples with averages of everybody's.

Yoon, Shin, Hwang, Yang. FedMix: Approximation of Mixup under Mean Augmented Federated Learning. ICLR 2021.
arXiv:2107.00233, Algorithms 1 and 2. Before the rounds each client splits its examples at random into
groups of `group_size` (M) and sends the mean input and the mean one-hot label of each. The server pools
them, shuffled, and hands the pool to everybody, once. In each batch a client draws one pair (m, q) of
the pool; with x, y the batch and lambda = `mix` it minimises

    naivemix   (1 - lambda) l(f(v), y) + lambda l(f(v), q),                  v = (1 - lambda) x + lambda m
    fedmix     (1 - lambda) l(f(u), y) + lambda l(f(u), q) + lambda <dl(f(u), y)/du, m>,  u = (1 - lambda) x

the second being the first expanded around u, without the terms in lambda^2. Inputs are normalised. It
costs a second backward pass. lambda = 0 exchanges nothing and is FedAvg, bit for bit.

The claim is that averaging hides. Server and clients read means of M examples with the labels mixed as
they were: M = 1 is everybody's data in the clear, and a client with fewer than M examples sends one mean
of what it has. Changed: the n mod M examples left over join the other groups, since the mean of a rest
of one would be that example. Everybody with data answers the exchange.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle
from fedaudit.fl.wire.protection import Message, Payload


class FedMix(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedMix",
        needs="classes",
        source="arXiv:2107.00233, Alg. 1 and 2",
        text="Clients share averages of a few of their examples each, and everybody trains on blends "
        "of own examples with these averages.",
        downlink=(*FedAvg.card.downlink, Kind.MASHED_BATCH),
        uplink=(*FedAvg.card.uplink, Kind.MASHED_BATCH),
    )

    @settings
    class Config(LocalConfig):
        variant: Literal["fedmix", "naivemix"] = Field(
            default="fedmix", description="the expanded loss of the paper, or plain mixing with the means"
        )
        mix: Share = Field(
            default=0.1,
            description="lambda: weight of the means in a blend; 0 is FedAvg; the paper looks at 0.05 to 0.2",
        )
        group_size: AtLeastOne = Field(
            default=5, description="M: examples behind one mean; 1 shares the examples themselves"
        )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        """Everybody's means to the server, the pool to everybody."""
        state = super().start(federation)
        members = federation.members
        if not self.config.mix or not members:
            return state
        federation.wire.records.mark_milestone(0)
        federation.workers.everywhere("begin", 0, {})
        jobs: list[tuple[str, tuple[int, Tree, Message]]] = [("mash", (k, {}, {})) for k in members]
        heard: list[Payload] = []
        for k, reply in zip(members, federation.workers.map("work", jobs), strict=True):
            received = federation.wire.uplink(0, reply.message, k, {})
            if received is not None:
                heard.append(received[Kind.MASHED_BATCH])
        if not heard:
            return state
        pool = {name: torch.cat([p[name] for p in heard]) for name in ("images", "labels")}
        # in the order of arrival, clients would learn which means are of one client
        order = torch.randperm(len(pool["labels"]), generator=federation.streams.torch("pool"))
        message: Message = {Kind.MASHED_BATCH: {name: rows[order] for name, rows in pool.items()}}
        federation.wire.broadcast(0, message, members)
        return state | {"handed": message}

    # Client ------------------------------------------------------------------------------

    def mash(self, client: Client) -> Reply:
        """Means of random groups: {"images": [m, ...] normalised, "labels": [m, C]}."""
        if not client.x.is_floating_point():
            raise UserError(
                "fedmix averages inputs, and these are whole numbers (tokens)",
                hint="choose a data set of images: `fedaudit tools list datasets`",
            )
        n = len(client.y)
        order = torch.randperm(n, generator=client.generator("mash")).to(client.y.device)
        groups = torch.tensor_split(order, max(1, n // self.config.group_size))
        label = one_hot(client.y, client.classes).to(client.x)
        means = {
            "images": torch.stack([client.x[g].mean(0) for g in groups]).cpu(),
            "labels": torch.stack([label[g].mean(0) for g in groups]).cpu(),
        }
        return Reply(message={Kind.MASHED_BATCH: means}, examples=n)

    def train(self, client: Client) -> Reply:
        """As ever, but one by one: a draw for each batch is no constant that clients could be stacked with."""
        const: Constants = client.message.get(Kind.MASHED_BATCH, {})
        if const:
            const = {**const, "draws": client.generator("mix")}
        return self.finish(client, client.train(self, const))

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not const:
            return cross_entropy(net(x), y)
        one = torch.randint(len(const["labels"]), (1,), generator=const["draws"])
        blend = compute_taylor_mixup_loss if self.config.variant == "fedmix" else compute_input_mixup_loss
        return blend(net, x, y, const["images"][one], const["labels"][one], self.config.mix)


def compute_input_mixup_loss(
    net: Handle, x: Tensor, y: Tensor, mean: Tensor, label: Tensor, mix: float
) -> Tensor:
    """Loss at blended inputs; x [b, ...], y [b], mean [1, ...], label [1, C]."""
    logits = net((1 - mix) * x + mix * mean)
    soft = cross_entropy(logits, label.expand(len(y), -1))
    return (1 - mix) * cross_entropy(logits, y) + mix * soft


def compute_taylor_mixup_loss(
    net: Handle, x: Tensor, y: Tensor, mean: Tensor, label: Tensor, mix: float
) -> Tensor:
    """The same to first order, from the loss at (1 - mix) x and its slope towards the mean."""
    shrunk = ((1 - mix) * x).requires_grad_()
    logits = net(shrunk)
    hard = cross_entropy(logits, y)  # a batch mean: so is its slope, example by example
    [slope] = torch.autograd.grad(hard, shrunk, create_graph=True)
    soft = cross_entropy(logits, label.expand(len(y), -1))
    return (1 - mix) * hard + mix * soft + mix * (slope * mean).sum()
