"""FedAwS: the server pushes the rows of the last layer apart after averaging.

Yu, Rawat, Menon, Kumar. Federated Learning with Only Positive Labels. ICML 2020. arXiv:2004.10342,
Algorithm 1.

Differs from FedAvg in the server's second half. On the averaged head rows W (proxies of the classes),
`steps` of SGD with momentum 0.9 on the spreadout regulariser

    R(W) = sum over c != c' of max(0, margin - d(W_c, W_c'))^2 / C^2,    d = (1 - cosine) / 2

so steps = 0 is FedAvg, bit for bit. Orthogonal rows have d = 1/2; the largest common d of C rows is
C / (2 (C - 1)), and a margin above that never lets go. d and the division by C^2 are those of the
public code of the FedRS paper, the default margin, steps and rate too.

`positive_only` is the original setting, clients with few classes that may not see other classes'
proxies. Messages then hold the model without the head's weight and, apart from it, the rows of the
client's own classes, of unit length; clients minimise mean of max(0, 0.9 - cos(W_y, h))^2. A client that was
not heard yet starts from its rows of the initial model, because the server does not know its classes.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message


class FedAwS(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedAwS",
        needs="classes",
        source="arXiv:2004.10342, Alg. 1",
        text="FedAvg whose server keeps the classes apart in the last layer, for clients that hold "
        "very few classes each.",
        downlink=(Kind.GLOBAL_MODEL, Kind.PROXIES),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.PROXIES),
    )

    @settings
    class Config(LocalConfig):
        margin: Share = Field(
            default=0.5,
            description="nu: distance (1 - cosine) / 2 up to which head rows are pushed apart; 0.8, with 30 "
            "steps at 0.1, is the other published setting",
        )
        steps: AtLeastZero = Field(default=50, description="steps of spreading in a round; 0 is FedAvg")
        spread_lr: Amount = Field(default=0.01, description="step size of spreading")
        positive_only: bool = Field(
            default=False,
            description="whether clients see the proxies of their own classes only, as in the original",
        )
        orthogonal_head: bool = Field(
            default=False, description="whether to start from orthonormal head rows, as the paper recommends"
        )

    def proxy_name(self, state: State) -> str:
        """The head's weight [C, D] in a whole state."""
        return next(k for k in self.head if state[k].dim() == 2)

    # Server ------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        super().open(federation)
        if self.config.orthogonal_head:
            model, rng = federation.initial, federation.streams.torch("fedaws")
            name = self.proxy_name(model)
            rows = torch.nn.init.orthogonal_(torch.empty_like(model[name]), generator=rng)
            federation.begin_with(model | {name: rows})

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"owned": {}}

    def broadcast(self, state: Tree) -> Message:
        model = state["model"]
        if self.config.positive_only:
            hidden = self.proxy_name(model)
            model = {k: v for k, v in model.items() if k != hidden}
        return {Kind.GLOBAL_MODEL: model}

    def send_to(self, state: Tree, client: int) -> Message:
        owned = state["owned"].get(str(client))
        if owned is None:
            return {}
        rows = state["model"][self.proxy_name(state["model"])][owned]
        return {Kind.PROXIES: {"classes": owned, "rows": rows}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        model, owned = state["model"], dict(state["owned"])
        name, mean = self.proxy_name(model), deliveries.average()
        rows, weights = model[name].double() * 0, torch.zeros(self.classes, dtype=torch.float64)
        for delivery in deliveries:
            weight = delivery.weight(self.config.weighting)
            mean.add(delivery.client, delivery.message[Kind.LOCAL_MODEL], weight, model)
            if self.config.positive_only:
                sent = delivery.message[Kind.PROXIES]
                owned[str(delivery.client)] = sent["classes"]
                rows[sent["classes"]] += weight * sent["rows"].double()
                weights[sent["classes"]] += weight
        model = model | mean.value()
        if self.config.positive_only:  # a class nobody sent keeps its row
            heard = (weights > 0)[:, None]
            averaged = rows / weights.clamp(min=1e-12)[:, None]
            model[name] = normalize(torch.where(heard, averaged, model[name].double())).float()
        if self.config.steps:
            model[name] = spread(model[name], self.config.margin, self.config.steps, self.config.spread_lr)
            if self.config.positive_only:
                model[name] = normalize(model[name])
        return {"model": model, "owned": owned}

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """Own rows stand in a head whose other rows are zero."""
        if not self.config.positive_only:
            return client
        name = self.proxy_name(client.initial)
        owned = client.counts.nonzero().flatten()
        rows = torch.zeros_like(client.initial[name])
        rows[owned] = normalize(client.initial[name][owned])
        if Kind.PROXIES in client.message:
            proxies = client.message[Kind.PROXIES]
            rows[proxies["classes"]] = proxies["rows"]
        whole = client.start | {name: rows}
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: whole})

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not self.config.positive_only:
            return cross_entropy(net(x), y)
        cosine = cosine_similarity(net.head_weight()[y], net.features(x), dim=1)
        return (0.9 - cosine).clamp(min=0).square().mean()

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if not self.config.positive_only:
            return reply
        name, owned = self.proxy_name(trained.state), client.counts.nonzero().flatten().cpu()
        shared = {k: v for k, v in trained.state.items() if k != name}
        own = {"classes": owned, "rows": trained.state[name][owned]}
        message = reply.message | {Kind.LOCAL_MODEL: shared, Kind.PROXIES: own}
        return replace(reply, message=message)


def spread(rows: Tensor, margin: float, steps: int, lr: float) -> Tensor:
    """Rows [C, D] after some steps down the spreadout regulariser."""
    w = rows.double().requires_grad_()
    optimiser = eager(torch.optim.SGD)([w], lr=lr, momentum=0.9)
    for _ in range(steps):
        (w.grad,) = torch.autograd.grad(spreadout(w, margin), [w])
        optimiser.step()
    return w.detach().to(rows.dtype)


def spreadout(rows: Tensor, margin: float) -> Tensor:
    """R(W): how much pairs of rows are nearer than the margin, [C, D] -> []."""
    unit = normalize(rows)
    near = (margin - (1 - unit @ unit.T) / 2).clamp(min=0).square()
    return (near.sum() - near.diagonal().sum()) / len(rows) ** 2
