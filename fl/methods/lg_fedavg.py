"""LG-FedAvg: clients keep their own representation and average the last layer.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency. Think Locally, Act Globally:
Federated Learning with Local and Global Representations. 2020. arXiv:2001.01523, Algorithm 1.

The opposite split of FedPer: the extractor is private, the head is averaged,

    head <- sum_k p_k head_k,    extractor of client k: trained with the head, never sent

so with nothing private (`private: []`) it is FedAvg, bit for bit. The paper starts from a model trained
with FedAvg: `warm_start` counts the rounds of FedAvg before the split. A client that was not heard
since then is sent the whole model, once, in place of the head. Left out: the paper's unsupervised
and fairness losses on the local representation.
"""

from dataclasses import replace

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.families.split import SplitMethod
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class LGFedAvg(SplitMethod):
    card = replace(
        FedAvg.card,
        title="LG-FedAvg",
        source="arXiv:2001.01523, Alg. 1",
        text="Clients keep their own feature layers and average only the last layer.",
    )

    @settings
    class Config(SplitMethod.Config):
        private: tuple[str, ...] = Field(
            default=("body",),
            description="parts that stay with the client: head, body, or beginnings of parameter names; "
            "none is FedAvg",
        )
        warm_start: AtLeastZero = Field(
            default=0,
            description="rounds of FedAvg before the extractors part ways; 0 splits from the first round",
        )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        heard = torch.zeros(len(federation.parts), dtype=torch.bool)  # since the warm start
        return super().start(federation) | {"heard": heard}

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        return super().round(t, state | {"warm": t < self.config.warm_start}, memory, federation)

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: state["model"]} if state["warm"] else super().broadcast(state)

    def send_to(self, state: Tree, client: int) -> Message:
        if state["warm"] or not self.config.warm_start or state["heard"][client]:
            return {}
        return {Kind.GLOBAL_MODEL: state["model"]}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        heard = state["heard"].clone()

        def note(delivery: Delivery) -> None:
            heard[delivery.client] = not state["warm"]

        return super().combine(state, deliveries.noting(note), round) | {"heard": heard}

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        # A whole model arrives during the warm start, and once after it
        return client if self.private(client.start) else super().receive(client)

    def finish(self, client: Client, trained: Trained) -> Reply:
        if client.round < self.config.warm_start:
            return RoundMethod.finish(self, client, trained)
        return super().finish(client, trained)
