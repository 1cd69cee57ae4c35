"""FedProto: clients draw near each other's class prototypes, and nothing else crosses the wire.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang. FedProto: Federated Prototype Learning across Heterogeneous Clients.
AAAI 2022. arXiv:2105.00243, Algorithm 1. Every client has a model of its own and minimises, with Q the mean of
the clients' prototypes (mean features of each class) of the round before,

    CE(z, y) + lambda R(h, Q[y])

and sends its own prototypes. lambda = 0 is training alone. R is `mean_square` of the authors' code
(yuetan031/FedProto), the mean over a batch of (h - Q[y])^2, element by element, or `distance`, the sum over the
classes of a batch of the distance between their mean feature there and Q. The distance is 0, without a direction,
where a client alone holds a class and begins to train. Classes that nobody reported count 0 in both.

As in that code, Q is the mean over clients, each counting alike. Changed from it: prototypes are measured in one
pass after training and not while the last epoch trains; the last partial batch is kept.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.own_models import OwnModels
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig
from fedaudit.fl.methods.rebafl import PooledPrototypes, client_prototypes
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message


class FedProto(OwnModels):
    card = Card(
        title="FedProto",
        needs="classes",
        source="arXiv:2105.00243, Alg. 1",
        text="Clients keep their models and exchange only the mean features of each class, near which all of "
        "them keep theirs.",
        downlink=(Kind.GLOBAL_PROTOTYPES,),
        uplink=(Kind.LOCAL_PROTOTYPES,),
        release=(),
    )

    @settings
    class Config(LocalConfig):
        weighting: Literal["uniform"] = Field(
            default="uniform", description="all clients weigh alike, as in the public code"
        )
        strength: Amount = Field(default=1.0, description="lambda: weight of the prototypes; 0 is training alone")
        regulariser: Literal["mean_square", "distance"] = Field(
            default="mean_square",
            description="what is weighted: the mean square of the public code, or distances between prototypes",
        )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        return {"prototypes": {}}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_PROTOTYPES: state["prototypes"]} if state["prototypes"] else {}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        pooled = PooledPrototypes(deliveries.prototype)
        for delivery in deliveries:
            sent = delivery.message[Kind.LOCAL_PROTOTYPES]
            pooled.add(delivery.client, sent, torch.ones(len(sent["classes"])))
        return state | {"prototypes": pooled.value({})}

    # Client ------------------------------------------------------------------------------

    def compute_constants(self, client: Client) -> Constants:
        """Q [C, D] and which classes it holds."""
        width = next(p.shape[1] for p in client.net.head.parameters() if p.dim() == 2)
        table = client.x.new_zeros(client.classes, width)
        have = torch.zeros(client.classes, dtype=torch.bool, device=client.x.device)
        if received := client.message.get(Kind.GLOBAL_PROTOTYPES):
            table[received["classes"]] = received["features"]
            have[received["classes"]] = True
        return {"table": table, "have": have}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not self.config.strength:
            return cross_entropy(net(x), y)
        h = net.features(x)
        measure = measure_distance if self.config.regulariser == "distance" else mean_square
        near = measure(h, y, const["table"], const["have"])
        loss: Tensor = cross_entropy(net.head(h), y) + self.config.strength * near
        return loss

    def finish(self, client: Client, trained: Trained) -> Reply:
        sent = client_prototypes(client, trained.state)
        reply = super().finish(client, trained)
        return replace(reply, message={Kind.LOCAL_PROTOTYPES: sent}, memory={"own": trained.state})


def mean_square(h: Tensor, y: Tensor, table: Tensor, have: Tensor) -> Tensor:
    """Mean of (h - Q[y])^2 over a batch and its features; h [b, D], y [b], Q [C, D], have [C]."""
    return ((h - table[y]).square().mean(1) * have[y]).mean()


def measure_distance(h: Tensor, y: Tensor, table: Tensor, have: Tensor) -> Tensor:
    """Sum over the classes of a batch of |mean h - Q|; shapes as above. No gradient where it is 0."""
    member = one_hot(y, len(table)).to(h.dtype)  # [b, C]
    counts = member.sum(0)
    gap = member.T @ h / counts.clamp(min=1)[:, None] - table
    square = torch.where((counts > 0) & have, gap.square().sum(1), 0.0)
    return torch.where(square > 0, square, 1.0).sqrt().where(square > 0, 0.0).sum()
