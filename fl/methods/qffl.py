"""q-FFL: clients on which the model does badly count more.

Li, Sanjabi, Beirami, Smith. Fair Resource Allocation in Federated Learning. ICLR 2020.
arXiv:1905.10497, Algorithm 2 (q-FedAvg).

Each client also sends F_k, the loss of the received model on all its training examples. With the
client rate eta and u_k = (w - w_k) / eta, the server steps

    w <- w - sum_k F_k^q u_k / sum_k [ q F_k^(q-1) ||u_k||^2 + F_k^q / eta ]

so q = 0 is FedAvg with uniform weighting, bit for bit; larger q evens out the losses. 1e-10 is added
to F_k, as in the authors' code. The method has its own weights, so `weighting` must be uniform.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained


class QFFL(FedAvg):
    card = replace(
        FedAvg.card,
        title="q-FFL",
        source="arXiv:1905.10497, Alg. 2",
        text="FedAvg in which clients also report how badly the shared model does on their data, "
        "and those with a larger loss get more weight.",
        uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_LOSS),
        needs_sgd=True,
    )

    @settings
    class Config(LocalConfig):
        weighting: Literal["uniform"] = Field(default="uniform", description="the method has its own weights")
        lr: Positive = Field(
            default=0.01, description="eta: step size of local training in round 0; the server divides by it"
        )
        q: Amount = Field(
            default=1.0,
            description="how much clients with a large loss count more; 0 is uniform FedAvg; the paper "
            "searches 0.001 to 5",
        )

    def finish(self, client: Client, trained: Trained) -> Reply:
        loss = client.net.task.loss(client.run("forward", client.start).double(), client.y)
        message = {Kind.LOCAL_MODEL: trained.state, Kind.LOCAL_LOSS: {"loss": loss.cpu()}}
        return Reply(
            message=message,
            examples=len(client.y),
            stats={"train_loss": trained.loss, "steps": float(trained.steps), "loss_at_start": float(loss)},
        )

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        q, rate = self.config.q, self.config.lr * self.config.lr_decay**round
        mean, curvature, w = deliveries.average(), 0.0, state["model"]
        for delivery in deliveries:
            model = delivery.message[Kind.LOCAL_MODEL]
            loss = float(delivery.message[Kind.LOCAL_LOSS]["loss"]) + 1e-10
            mean.add(delivery.client, model, loss**q, w)
            squared = sum(float((model[k].double() - w[k].double()).square().sum()) for k in self.parameters)
            curvature += q * loss ** (q - 1) * squared / rate  # eta times the first term
        # The printed step is a share of the one to the mean weighted by F_k^q; q = 0 takes it whole
        average, share = mean.value(), mean.total / (mean.total + curvature)
        moved = {k: self._move_towards(w[k], average[k], share) for k in self.parameters}
        return {"model": average | moved}

    def _move_towards(self, w: torch.Tensor, mean: torch.Tensor, share: float) -> torch.Tensor:
        # w + share (mean - w), counted from the mean so that share 1 is the mean to the last bit
        return (mean.double() + (share - 1) * (mean.double() - w.double())).to(w.dtype)
