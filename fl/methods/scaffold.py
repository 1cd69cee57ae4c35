"""SCAFFOLD: control variates cancel the drift of each client from the others.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning. ICML 2020. arXiv:1910.06378, Algorithm 1. Each local step goes along g(y) + c - c_k, and

    option II:  c_k+ = c_k - c + (w - y) / (tau eta)          option I:  c_k+ = full local gradient at w
    w <- w + eta_g mean(y - w),   c <- c + (|S| / K) mean(c_k+ - c_k)

Uniform weights, as in the theory. With momentum the displacement is longer than tau eta gradients, so
it is divided by eta ||a||_1 (FedNova) instead. `literal_public_code` is what the ReBaFL and FedRS
repositories do: they move by -eta (c - c_k) after the optimiser's step, outside its momentum, divide by
tau eta all the same and leave out the factor |S| / K.
A client's c_k lives in its memory and advances only when its answer was received.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, RoundMethod
from fedaudit.fl.methods.fednova import step_weight
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.batches import has_batch_statistics, split_into_batches
from fedaudit.fl.training.local import Constants, Handle, Params, Trained, bind
from fedaudit.fl.wire.protection import Message


class Scaffold(RoundMethod):
    card = Card(
        title="SCAFFOLD",
        source="arXiv:1910.06378, Alg. 1",
        text="Clients correct every training step by the difference between the average direction of "
        "all clients and their own, which the server keeps track of.",
        downlink=(Kind.GLOBAL_MODEL, Kind.CONTROL_GLOBAL),
        uplink=(Kind.MODEL_DELTA, Kind.CONTROL_DELTA),
        needs_sgd=True,
    )

    @settings
    class Config(LocalConfig):
        weighting: Literal["uniform"] = Field(
            default="uniform", description="all clients weigh alike, as in the theory"
        )
        option: Literal["I", "II"] = Field(
            default="II",
            description="new control variates: the full local gradient (I), or from the distance trained (II)",
        )
        server_lr: Positive = Field(default=1.0, description="eta_g: step size of the server; 1 is usual")
        literal_public_code: bool = Field(
            default=False,
            description="whether to do as the ReBaFL and FedRS repositories, without the factor |S| / K",
        )

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        control = {k: torch.zeros_like(model[k]) for k in self.parameters}
        return {"model": model, "control": control, "clients": len(federation.parts)}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: state["model"], Kind.CONTROL_GLOBAL: state["control"]}

    def compute_constants(self, client: Client) -> Constants:
        common, own = client.message[Kind.CONTROL_GLOBAL], self._read_control(client)
        return {"shift": {k: c - own[k].to(c.device) for k, c in common.items()}}

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        if self.config.literal_public_code:
            return grads
        return {k: g + const["shift"][k] for k, g in grads.items()}

    def after_step(self, params: Params, const: Constants, rate: float) -> Params:
        if not self.config.literal_public_code:
            return {}
        return {k: w - rate * const["shift"][k] for k, w in params.items()}

    def finish(self, client: Client, trained: Trained) -> Reply:
        start = {k: v.cpu() for k, v in client.start.items()}
        change = {k: v - start[k] for k, v in trained.state.items()}
        before = self._read_control(client)
        after = self._update_control(client, before, change, trained.steps)
        return Reply(
            message={Kind.MODEL_DELTA: change, Kind.CONTROL_DELTA: {k: after[k] - before[k] for k in after}},
            examples=len(client.y),
            memory={"control": after},
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def _read_control(self, client: Client) -> dict[str, Tensor]:
        """c_k: zero until the client's first answer is received."""
        common = client.message[Kind.CONTROL_GLOBAL]
        zero = {k: torch.zeros(c.shape, dtype=c.dtype) for k, c in common.items()}
        own: dict[str, Tensor] = client.memory.get("control", zero)
        return own

    def _update_control(self, client: Client, before: Params, change: Params, steps: int) -> Params:
        if self.config.option == "I":
            return self._compute_full_gradient(client)
        rate = self.config.lr * self.config.lr_decay**client.round
        momentum = 0.0 if self.config.literal_public_code else self.config.momentum
        length = rate * step_weight(steps, momentum)
        if not length:  # it could not move, and learnt nothing about its gradient
            return before
        common = client.message[Kind.CONTROL_GLOBAL]
        return {k: c - common[k].cpu() - change[k] / length for k, c in before.items()}

    def _compute_full_gradient(self, client: Client) -> Params:
        """Gradient of the mean loss over all local examples at the received model."""
        bind(client.net, client.start)
        params = dict(client.net.named_parameters())
        trained = {k: p for k, p in params.items() if p.requires_grad}
        const, total = self.compute_constants(client), {k: torch.zeros_like(p) for k, p in params.items()}
        sizes = split_into_batches(len(client.y), 500, joins=has_batch_statistics(client.net))
        for x, y in zip(torch.split(client.x, sizes), torch.split(client.y, sizes), strict=True):
            loss = self.loss(Handle(client.net), x, y, const) * (len(y) / len(client.y))
            grads = torch.autograd.grad(loss, list(trained.values()), allow_unused=True, materialize_grads=True)
            for k, g in zip(trained, grads, strict=True):
                total[k] = total[k] + g
        decay = self.config.weight_decay
        return {
            k: (t + decay * params[k].detach()).cpu().clone(memory_format=torch.contiguous_format)
            for k, t in total.items()
        }

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        change, control = deliveries.average(), WeightedMean()
        for delivery in deliveries:
            change.add(delivery.client, delivery.message[Kind.MODEL_DELTA], 1.0, {})
            control.add(delivery.message[Kind.CONTROL_DELTA], 1.0)
        share = 1.0 if self.config.literal_public_code else control.total / state["clients"]
        step = change.value()
        model = {
            k: w + self.config.server_lr * step[k] if w.is_floating_point() else w + step[k]
            for k, w in state["model"].items()
        }
        move = control.value()
        return state | {"model": model, "control": {k: c + share * move[k] for k, c in state["control"].items()}}
