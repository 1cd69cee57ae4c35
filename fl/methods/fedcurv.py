"""FedCurv: clients stay near each other's models where the others' data made them steep.

Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef, Zeitak. Overcoming Forgetting in Federated Learning on
Non-IID Data. NeurIPS 2019 workshop. arXiv:1910.07796. Client k minimises, from the global model,

    CE(w) + lambda sum_{j != k} F_j (w - w_j)^2            F_j: diagonal of the Fisher information at w_j

and sends besides its model u_k = F_k and v_k = F_k w_k. The server sends the sums u and v of the last round's
clients; a client of that round subtracts its own, and the penalty's gradient is 2 lambda (u w - v). lambda = 0
is FedAvg, bit for bit, and Fisher diagonals are sent all the same. After a round in which nobody was heard
there are no sums.

F is the mean over a client's examples of squared gradients of the log likelihood, in evaluation mode (no batch
has a part in it). The paper has no public code. The code of OpenFL departs in two ways, which are settings: it
squares the gradient of a batch (`per: batch`), so that examples that pull apart cancel; and it takes the labels
that were observed, where Fisher information is the mean over labels that the model draws (`labels: model`,
exact, over all classes). Changed: sums less one's own can fall below 0 by rounding or noise, and curvature
below 0 is taken for 0.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, log_softmax

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Params, Trained, bind
from fedaudit.fl.wire.protection import Message, Payload

AT_ONCE = 2**23  # numbers of gradients that are held at a time


class FedCurv(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedCurv",
        needs="classes",
        source="arXiv:1910.07796, eq. 4 to 7",
        text="FedAvg whose clients also send how steep their loss is in every weight, and keep near "
        "the others' models where those are steep.",
        downlink=(Kind.GLOBAL_MODEL, Kind.FISHER),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.FISHER),
    )

    @settings
    class Config(LocalConfig):
        strength: Amount = Field(
            default=1.0,
            description="lambda: weight of the penalty; 0 is FedAvg, which sends Fisher diagonals too",
        )
        per: Literal["example", "batch"] = Field(
            default="example",
            description="whose gradient is squared: each example's, or a batch's mean as in the code of OpenFL",
        )
        labels: Literal["observed", "model"] = Field(
            default="observed",
            description="labels of the log likelihood: those of the data, or all classes as likely as the model "
            "has them, by which labels no longer show",
        )

        def __post_init__(self) -> None:
            if self.per == "batch" and self.labels == "model":
                raise UserError(
                    "fedcurv: labels that the model draws for a whole batch have no mean in closed form",
                    hint="use per: example with labels: model",
                    key="method.per",
                )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"fisher": {}, "of": -1}

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        sums = state["fisher"] if state["of"] == t - 1 else {}
        return super().round(t, state | {"fisher": sums}, memory, federation)

    def broadcast(self, state: Tree) -> Message:
        message = super().broadcast(state)
        return message | {Kind.FISHER: state["fisher"]} if state["fisher"] else message

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        total = WeightedMean()

        def add(delivery: Delivery) -> None:
            total.add(delivery.message[Kind.FISHER], 1.0)

        averaged = super().combine(state, deliveries.noting(add), round)
        sums = {k: v * total.total for k, v in total.value().items()}
        return averaged | {"fisher": sums, "of": round}

    # Client ------------------------------------------------------------------------------

    def compute_constants(self, client: Client) -> Constants:
        """u and v of the others: zero where none were sent."""
        sums, memory = client.message.get(Kind.FISHER, {}), client.memory
        own = memory["fisher"] if memory and memory["round"] == client.round - 1 else {}
        others: dict[str, Tensor] = {k: v - own[k].to(v) if own else v for k, v in sums.items()}
        found: dict[str, dict[str, Tensor]] = {"u": {}, "v": {}}
        for name, start in client.start.items():
            if name in self.parameters:
                nothing = torch.zeros_like(start)
                found["u"][name] = others.get(f"u/{name}", nothing).clamp(min=0)
                found["v"][name] = others.get(f"v/{name}", nothing)
        return found

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        scale = 2 * self.config.strength
        if not scale:
            return grads
        u, v = const["u"], const["v"]
        return {k: g + scale * (u[k] * params[k] - v[k]) for k, g in grads.items()}

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, fisher = super().finish(client, trained), self._measure_fisher(client, trained.state)
        sent = {f"u/{k}": u for k, u in fisher.items()}
        sent |= {f"v/{k}": u * trained.state[k] for k, u in fisher.items()}
        memory = {"fisher": sent, "round": client.round}
        return replace(reply, message=reply.message | {Kind.FISHER: sent}, memory=memory)

    def _measure_fisher(self, client: Client, state: State) -> Payload:
        """F_k of every parameter, on the CPU."""
        config, net = self.config, client.net
        bind(net, state)
        net.eval()
        weights = {k: p.detach() for k, p in net.named_parameters()}
        fixed = dict(net.named_buffers())
        if config.per == "batch":
            found = _square_batches(net, weights, fixed, client.x, client.y, config.batch_size)
        else:
            found = _square_examples(net, weights, fixed, client.x, client.y, config.labels)
        return {k: v.to("cpu", torch.float32, memory_format=torch.contiguous_format) for k, v in found.items()}


def _square_examples(
    net: Net, weights: Params, fixed: Mapping[str, Tensor], x: Tensor, y: Tensor, labels: str
) -> Params:
    """Mean over examples of the squared gradient of -log p(label), by parameter."""

    def loss(now: Params, xi: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(Handle(net, {**fixed, **now})(xi[None]), label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    total = {k: torch.zeros_like(w) for k, w in weights.items()}
    size = max(1, AT_ONCE // sum(w.numel() for w in weights.values()))
    for xb, yb in zip(torch.split(x, size), torch.split(y, size), strict=True):
        for label, chance in _list_labels(net, weights, fixed, xb, yb, labels):
            for k, g in each(weights, xb, label).items():
                total[k] += torch.einsum("b,b...->...", chance, g.square())
    return {k: v / len(y) for k, v in total.items()}


def _square_batches(
    net: Net, weights: Params, fixed: Mapping[str, Tensor], x: Tensor, y: Tensor, size: int
) -> Params:
    """Mean over batches, in the order of the data, of the squared gradient of a mean loss, by parameter."""

    def loss(now: Params, xb: Tensor, yb: Tensor) -> Tensor:
        return cross_entropy(Handle(net, {**fixed, **now})(xb), yb)

    slope, total = grad(loss), {k: torch.zeros_like(w) for k, w in weights.items()}
    batches = list(zip(torch.split(x, size), torch.split(y, size), strict=True))
    for xb, yb in batches:
        for k, g in slope(weights, xb, yb).items():
            total[k] += g.square()
    return {k: v / len(batches) for k, v in total.items()}


def _list_labels(
    net: Net, weights: Params, fixed: Mapping[str, Tensor], x: Tensor, y: Tensor, labels: str
) -> list[tuple[Tensor, Tensor]]:
    """Labels [b] to take for examples, each with how likely it is, [b]."""
    if labels == "observed":
        return [(y, torch.ones(len(y), dtype=x.dtype, device=x.device))]
    with torch.no_grad():
        chances = log_softmax(Handle(net, {**fixed, **weights})(x), 1).exp()
    return [(torch.full_like(y, c), chances[:, c]) for c in range(chances.shape[1])]
