"""FedMD: clients agree on outputs for public examples, and no model crosses the wire.

Li, Wang. FedMD: Heterogenous Federated Learning via Model Distillation. NeurIPS 2019 workshop. arXiv:1910.03581,
Algorithm 1. Every client has a model of its own. Of the public examples (federation.holdout.server: examples that
everybody has) N_a are drawn in every round, and

    client k sends its logits f_k(x) on them, and the server the mean f over the clients
    client k fits |f_k(x) - f(x)|, the mean over examples and classes, then cross-entropy on its own examples

Here a round begins with the mean of the round before, as in other methods, and ends with logits; what is
computed is the same, but that the last mean is not fitted. Which examples are drawn is known to all from a
common seed. Clients that were not heard fit the mean of those that were. No alignment epochs is training alone.

From the authors' code (diogenes0319/FedMD_clean) are the numbers of examples and epochs and the mean absolute
error. Changed: an optimiser is empty at the beginning of each phase of each round. Left out: the training on
public labels before the first round; networks that differ between clients. The mean of logits is the
federation's aggregator, so a robust one stands for Cronus (Chang et al., arXiv:1912.11279), which takes a
robust mean of predictions.

`candidates` plays a malicious server, which puts clients' own examples into the public ones to tell who trained
on them (attack public_membership). An honest one puts none.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply, evaluate
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.own_models import OwnModels
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, PartTraining, Trained, TrainingHooks
from fedaudit.fl.wire.protection import Message


class FedMD(OwnModels):
    card = Card(
        title="FedMD",
        needs="classes",
        source="arXiv:1910.03581, Alg. 1",
        text="Clients keep their models and exchange only their outputs on public examples, on the mean of which "
        "all of them train.",
        downlink=(Kind.PUBLIC_LOGITS,),
        uplink=(Kind.PUBLIC_LOGITS,),
        release=(),
    )

    @settings
    class Config(LocalConfig):
        local_epochs: AtLeastZero = Field(
            default=4, description="passes of a client over its own data in a round; 4 is the authors'"
        )
        weighting: Literal["uniform"] = Field(
            default="uniform", description="all clients weigh alike, as in the paper"
        )
        public_size: AtLeastOne = Field(
            default=5000, description="N_a: public examples of a round, as far as there are so many"
        )
        align_epochs: AtLeastZero = Field(
            default=1, description="passes over the round's public examples; 0 is training alone"
        )
        align_batch: AtLeastOne = Field(default=256, description="examples in a batch of those")
        first_epochs: AtLeastZero = Field(
            default=25,
            description="passes of a client over its own data in its first round, in the place of local_epochs",
        )
        candidates: AtLeastZero = Field(
            default=0,
            description="examples of each client's own that a malicious server makes public; 0 is an "
            "honest server",
        )

    # Server ------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        super().open(federation)
        if not len(federation.public.spare):
            raise UserError(
                "FedMD needs public examples, and the federation has none",
                hint="set federation.holdout.server, for instance to 0.2",
                key="federation.holdout.server",
            )
        self.parameters = ("logits",)  # what the aggregator works on

    def start(self, federation: Federation) -> Tree:
        return {"mean": {}}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.PUBLIC_LOGITS: state["mean"]} if state["mean"] else {}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, index = deliveries.average(), torch.zeros(0, dtype=torch.int64)
        for delivery in deliveries:
            sent = delivery.message[Kind.PUBLIC_LOGITS]
            index = sent["index"]
            mean.add(delivery.client, {"logits": sent["logits"]}, delivery.weight(self.config.weighting), {})
        found = mean.value()
        return state | {"mean": {} if mean.is_short else {"index": index, **found}}

    # Client ------------------------------------------------------------------------------

    def train(self, client: Client) -> Reply:
        """Fit the mean that was received, then the client's own examples."""
        assert client.read_public is not None, "set in every worker"
        public, start = client.read_public(self.config.candidates), client.start
        if (received := client.message.get(Kind.PUBLIC_LOGITS)) and self.config.align_epochs:
            x = public[received["index"]]
            places = torch.arange(len(x), device=x.device)
            pupil = replace(client, x=x, y=places, records=None)
            const = {"mean": received["logits"]}
            start = pupil.train(_Aligning(self.config), const, start, stream="public_batches").state
        first = not client.memory and self.config.first_epochs
        hooks = PartTraining(self, replace(self.config, local_epochs=first)) if first else self
        trained = client.train(hooks, self.compute_constants(client), start)
        return self._answer(client, trained, public)

    def _answer(self, client: Client, trained: Trained, public: Tensor) -> Reply:
        index = self._draw(client, len(public))
        logits = evaluate(client.net, "forward", trained.state, public[index.to(public.device)])
        return Reply(
            message={Kind.PUBLIC_LOGITS: {"index": index, "logits": logits.float().cpu()}},
            examples=len(client.y),
            memory={"own": trained.state},
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def _draw(self, client: Client, number: int) -> Tensor:
        """Places of the round's public examples, ascending: the same for all clients."""
        order = torch.randperm(number, generator=client.streams.torch("public", client.round))
        return order[: self.config.public_size].sort().values


def alignment_loss(logits: Tensor, mean: Tensor) -> Tensor:
    """Mean over examples and classes of |f_k - f|, both [b, C]."""
    return (logits - mean).abs().mean()


class _Aligning(TrainingHooks):
    """Training on public examples, whose labels are their places in const["mean"]."""

    def __init__(self, config: FedMD.Config) -> None:
        self.config = replace(config, local_epochs=config.align_epochs, batch_size=config.align_batch)

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return alignment_loss(net(x), const["mean"][y])
