"""Datacenter: no federation at all, ordinary training on everybody's pooled data. The upper reference.

The comparison of GANDALF (sec. 4). Nothing is sent; each round is `local_epochs` passes over the pooled
examples with the clients' optimiser, whose momentum starts anew every round. With one client that
always answers it is FedAvg to the last bit.
"""

from dataclasses import replace

import numpy as np

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, RoundMethod
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.watched import MeasuredValues


class Datacenter(RoundMethod):
    card = Card(
        title="Datacenter",
        source="GANDALF, sec. 4 (centralised training)",
        text="Ordinary training on all clients' data brought to one place: what federated methods are "
        "compared with, and what they exist to avoid.",
        downlink=(),
        uplink=(),
    )

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        everyone = np.concatenate(federation.parts)
        federation.wire.records.note_pooling(federation.members)
        [reply] = federation.workers.map("work_on_rows", [("pool", t, state["model"], everyone)])
        federation.tally = Tally(examples=reply.examples, stats=MeasuredValues(reply.stats))
        return {"model": reply.message[Kind.LOCAL_MODEL]}

    def pool(self, everybody: Client) -> Reply:
        """One round of central training, with the batches the first of the clients would draw."""
        first = replace(everybody, index=0)
        return self.finish(first, first.train(self, {}))
