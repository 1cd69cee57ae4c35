"""FedDyn: each client carries a linear term that makes its optimum agree with everybody's.

Acar, Zhao, Navarro, Mattina, Whatmough, Saligrama. Federated Learning Based on Dynamic Regularization.
ICLR 2021. arXiv:2111.04263, Algorithm 1. Client k keeps a dual g_k and minimises

    F_k(v) - <g_k, v> + (alpha / 2) ||v - w||^2,   then   g_k <- g_k - alpha (w_k - w)

The server keeps h with h <- h - (alpha / K) sum_k (w_k - w) and serves mean(w_k) - h / alpha. Stored
here is h / alpha, so that alpha = 0 has a meaning: even then it is not FedAvg, because the server's
correction does not depend on alpha. K counts all clients, uniform weights.
`eval_model: mean_all_latest` serves the mean of every client's latest model, as the authors' code
reports; the default is the model that is really sent.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Params, Trained


class FedDyn(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedDyn",
        source="arXiv:2111.04263, Alg. 1",
        text="Each client remembers how its own data pulls the model and compensates for it, and the "
        "server adds up what clients compensated.",
        uplink=(Kind.LOCAL_MODEL,),
    )

    @settings
    class Config(LocalConfig):
        weighting: Literal["uniform"] = Field(
            default="uniform", description="all clients weigh alike, as in the paper"
        )
        alpha: Amount = Field(
            default=0.01, description="strength of the dynamic regulariser; the paper searches {0.1, 0.01, 0.001}"
        )
        server_correction: bool = Field(
            default=True, description="whether the server corrects the mean; without it alpha: 0 is FedAvg"
        )
        eval_model: Literal["served", "mean_all_latest"] = Field(
            default="served",
            description="the model that is evaluated: what is sent, or the mean of every client's latest as "
            "in the authors' code",
        )

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        return {
            "model": model,
            "correction": {k: torch.zeros_like(v) for k, v in model.items() if v.is_floating_point()},
            "clients": len(federation.parts),
            "latest": {},
            "initial": model if self.config.eval_model == "mean_all_latest" else {},
        }

    def compute_constants(self, client: Client) -> Constants:
        zero = {k: torch.zeros_like(p) for k, p in client.start.items() if k in self.parameters}
        dual = client.memory.get("dual", zero)
        return {"dual": {k: g.to(client.y.device) for k, g in dual.items()}}

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        alpha, dual = self.config.alpha, const["dual"]
        return {k: g - dual[k] + alpha * (params[k] - start[k]) for k, g in grads.items()}

    def finish(self, client: Client, trained: Trained) -> Reply:
        dual, start = self.compute_constants(client)["dual"], client.start
        after = {k: g.cpu() - self.config.alpha * (trained.state[k] - start[k].cpu()) for k, g in dual.items()}
        return Reply(
            message={Kind.LOCAL_MODEL: trained.state},
            examples=len(client.y),
            memory={"dual": after},
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, latest = deliveries.average(), dict(state["latest"])
        for delivery in deliveries:
            mean.add(delivery.client, delivery.message[Kind.LOCAL_MODEL], 1.0, state["model"])
            if self.config.eval_model == "mean_all_latest":
                latest[str(delivery.client)] = delivery.message[Kind.LOCAL_MODEL]
        average, before, share = mean.value(), state["model"], mean.total / state["clients"]
        correction = {k: u - share * (average[k] - before[k]) for k, u in state["correction"].items()}
        model = average
        if self.config.server_correction:
            model = {k: v - correction[k] if k in correction else v for k, v in average.items()}
        return state | {"model": model, "correction": correction, "latest": latest}

    def get_model(self, state: Tree) -> State:
        if self.config.eval_model == "served":
            return super().get_model(state)
        mean = WeightedMean()
        for k in range(state["clients"]):
            mean.add(state["latest"].get(str(k), state["initial"]), 1.0)
        return mean.value()
