"""Federated distillation: the exchange of mean outputs by class, shared by FD and its hybrid.

Jeong, Oh, Kim, Park, Bennis, Kim. Communication-Efficient On-Device Machine Learning: Federated
Distillation and Augmentation under Non-IID Private Data. 2018. arXiv:1811.11479, Algorithm 1.

Row c of a table [C, C] is a mean softmax output over examples of class c; `present` [C] says which
rows exist. Rows that do not exist are zero and never used. With f_k the table of client k,

    client k receives g_k = mean of f_j over the other clients j that reported the row last round
    and minimises CE(z, y) + gamma * CE(z, row y of g_k)

A class that nobody else reported is not distilled.

Changed: the table is measured in one pass after training, on all examples, where the paper gathers
outputs along the round's steps. gamma is not given there; comparisons search {0.05, 0.1, 0.5, 1}.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, one_hot

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message, Payload


class Distilling(RoundMethod):
    """FedAvg and, besides, the exchange of tables."""

    @settings
    class Config(LocalConfig):
        gamma: Amount = Field(
            default=1.0,
            description="weight of the distillation; 0 learns from own labels only; comparisons search "
            "{0.05, 0.1, 0.5, 1}",
        )

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"tables": {}, "pooled": pool_tables(self.classes, [])}

    def send_to(self, state: Tree, client: int) -> Message:
        if not state["tables"]:
            return {}
        own = state["tables"].get(str(client))
        return {Kind.GLOBAL_LOGIT_TABLE: mean_of_others(state["pooled"], own)}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        tables: dict[str, Payload] = {}

        def keep(delivery: Delivery) -> None:
            tables[str(delivery.client)] = delivery.message[Kind.MEAN_LOGIT_TABLE]

        averaged = self.average(state, deliveries.noting(keep), round)
        return averaged | {"tables": tables, "pooled": pool_tables(self.classes, tables.values())}

    def average(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        """What the server does besides: FedAvg."""
        return super().combine(state, deliveries, round)

    def compute_constants(self, client: Client) -> Constants:
        nothing = {"table": client.x.new_zeros(client.classes, client.classes), "present": client.counts < 0}
        return client.message.get(Kind.GLOBAL_LOGIT_TABLE, nothing)

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        z, gamma = net(x), self.config.gamma
        if not gamma:
            return cross_entropy(z, y)
        distilled: Tensor = gamma * distillation_loss(z, y, const["table"], const["present"])
        return cross_entropy(z, y) + distilled

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        table = mean_outputs(client, trained.state)
        return replace(reply, message=reply.message | {Kind.MEAN_LOGIT_TABLE: table})


def mean_outputs(client: Client, state: State) -> Payload:
    """A client's table: its model's mean softmax output on each class it owns, evaluation mode."""
    outputs = client.run("forward", state).double().softmax(1)
    member = one_hot(client.y, client.classes).double()  # [n, C]
    counts = member.sum(0)
    table = member.T @ outputs / counts.clamp(min=1)[:, None]
    return {"table": table.float().cpu(), "present": (counts > 0).cpu()}


def pool_tables(classes: int, tables: Iterable[Payload]) -> Tree:
    """The sum of tables, "sum" [C, C] in double precision, and how many hold each row, "holders" [C]."""
    total = torch.zeros(classes, classes, dtype=torch.float64)
    holders = torch.zeros(classes, dtype=torch.int64)
    for t in tables:
        total += t["table"].double() * t["present"][:, None]
        holders += t["present"]
    return {"sum": total, "holders": holders}


def mean_of_others(total: Tree, own: Payload | None) -> Payload:
    """The mean table without one client's own; a row nobody else reported is absent."""
    rest, holders = total["sum"], total["holders"]
    if own is not None:
        rest = rest - own["table"].double() * own["present"][:, None]
        holders = holders - own["present"].long()
    present = holders > 0
    table = rest / holders.clamp(min=1)[:, None] * present[:, None]
    return {"table": table.float(), "present": present}


def distillation_loss(logits: Tensor, y: Tensor, table: Tensor, present: Tensor) -> Tensor:
    """Mean over a batch of the cross-entropy from row y of the table to softmax(logits).

    logits [b, C], y [b], table [C, C], present [C]; examples without a row count zero.
    """
    each = -(table[y] * log_softmax(logits, 1)).sum(1)
    return (each * present[y]).mean()
