"""FedNova: clients that took different numbers of steps are normalised before they are averaged.

Wang, Liu, Liang, Joshi, Poor. Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization. NeurIPS 2020. arXiv:2007.07481, eq. 3 and sec. 4. Client k sends its change per unit of
accumulated step weight, d_k = (w - w_k) / (eta ||a_k||_1), and the server steps

    w <- w - tau_eff eta sum_k p_k d_k,   tau_eff = sum_k p_k ||a_k||_1   (proximal: sum_k p_k tau_k)

||a||_1 is tau for plain SGD, [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho) with momentum rho, and
the last iterate of v <- v (1 - eta mu) + 1 with a proximal term. Both at once have no derivation and are
refused. With equal numbers of steps it is FedAvg.
"""

from dataclasses import replace

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, BelowOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Params, Trained


class FedNova(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedNova",
        source="arXiv:2007.07481, eq. 3",
        text="FedAvg that divides each client's change by how far it could have moved, so that clients "
        "with more data or more local steps do not pull the average their way.",
        uplink=(Kind.NORMALIZED_DELTA, Kind.NUM_STEPS, Kind.NUM_EXAMPLES),
        needs_sgd=True,
    )

    @settings
    class Config(LocalConfig):
        mu: Amount = Field(
            default=0.0, description="proximal weight of the local solver; not together with momentum"
        )
        server_momentum: BelowOne = Field(default=0.0, description="gamma: momentum of the server")

        def __post_init__(self) -> None:
            if self.mu and self.momentum:
                raise UserError(
                    "fednova: mu and momentum together have no derivation", hint="set one of them to 0"
                )

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"buffer": {}}

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        return {k: g + self.config.mu * (params[k] - start[k]) for k, g in grads.items()}

    def finish(self, client: Client, trained: Trained) -> Reply:
        rate = self.config.lr * self.config.lr_decay**client.round
        norm = step_weight(trained.steps, self.config.momentum, rate * self.config.mu)
        scale = rate * norm or 1.0  # a client that could not move has no change to divide
        start = client.start
        change = {k: (start[k].cpu() - v) / scale for k, v in trained.state.items() if v.is_floating_point()}
        n = len(client.y)
        return Reply(
            message={
                Kind.NORMALIZED_DELTA: change,
                Kind.NUM_STEPS: {
                    "steps": torch.tensor(trained.steps),
                    "norm": torch.tensor(norm, dtype=torch.float64),
                },
                Kind.NUM_EXAMPLES: count_of(n),
            },
            examples=n,
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, effective = deliveries.average(), 0.0
        for delivery in deliveries:
            steps = delivery.message[Kind.NUM_STEPS]
            if not int(steps["steps"]):
                continue  # it did not move, and its d_k says nothing
            weight = delivery.weight(self.config.weighting)
            effective += weight * float(steps["steps"] if self.config.mu else steps["norm"])
            mean.add(delivery.client, delivery.message[Kind.NORMALIZED_DELTA], weight, {})
        if not mean.total:
            return state
        rate = self.config.lr * self.config.lr_decay**round
        gamma, before = self.config.server_momentum, state["buffer"]
        move = {k: d * (effective / mean.total) for k, d in mean.value().items()}
        buffer = {k: m + gamma * before[k] if before else m for k, m in move.items()}
        model = {k: w - rate * buffer[k] if k in buffer else w for k, w in state["model"].items()}
        return {"model": model, "buffer": buffer if gamma else {}}


def step_weight(steps: int, momentum: float, shrink: float = 0.0) -> float:
    """||a||_1 of `steps` local steps; `shrink` is eta mu of a proximal solver."""
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    total = 0.0
    for _ in range(steps):
        total = total * (1 - shrink) + 1
    return total
