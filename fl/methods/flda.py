"""FLDA: each client mixes the shared model with a private one, and a gate chooses between them.

Peterson, Kanani, Marathe. Private Federated Learning with Domain Adaptation. 2019. arXiv:1912.06733.
(Compared with in the FedRS paper, doi:10.1145/3447548.3467254.)

Client k has a private model P_k and a gate a(x) = sigmoid(u_k h(x) + b_k), with h the head's input
under the shared model G. All three are trained together on -log of

    a(x) softmax(G(x))_y + (1 - a(x)) softmax(P_k(x))_y

Only G is sent, and averaged as in FedAvg; P_k, u_k and b_k stay. P_k starts as a copy of the initial
model, the gate at one half. With `gate: one` (the gate fixed at 1) it is FedAvg, bit for bit.

Released is G alone, as FedRS evaluates it; `client_accuracy` and `personal_accuracy` are those of the
mixtures. G alone is a poor model, by design: a client's private model fits its few classes after one visit,
the gate turns to it, and the loss reaches G only by G's share of the mixture. (Digits, 20 clients of two
classes: gate and share of G .1 to .3 from the second visit on; after 20 rounds G has .45 and
.39 at two seeds, a client's mixture .97 on data like its own at the second, FedAvg .75 at the first.)

Changed: the gate reads h, where the original linear model reads x.
Left out: the variant with noise on the gradients of G (a protection on the wire does as much).
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid, nll_loss

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.method import LocalConfig, Owned
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle


class FLDA(FedAvg):
    card = replace(
        FedAvg.card,
        title="FLDA (mixture of experts)",
        needs="classes",
        source="arXiv:1912.06733",
        text="Each client learns when to trust the shared model and when a private model of its own; "
        "only the shared model is sent and averaged.",
    )

    @settings
    class Config(LocalConfig):
        gate: Literal["learned", "one"] = Field(
            default="learned",
            description="how shared and private model are mixed; one is the shared model alone, which is FedAvg",
        )

    def prepare(self, net: Net, classes: int) -> Net:
        return Mixture(super().prepare(net, classes), gated=self.config.gate == "learned")

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return nll_loss(net(x), y)

    def train(self, client: Client) -> Reply:
        own = client.memory.get("own") or self._start_network(client)
        start = under("shared", client.start) | own
        trained = client.train(self, {}, start)
        shared = inside("shared", trained.state)
        kept = {k: v for k, v in trained.state.items() if not k.startswith("shared.")}
        reply = self.finish(client, replace(trained, state=shared))
        return replace(reply, memory={"own": kept})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        """Each client's mixture: the shared model as it is now, its private one and its gate."""
        shared = under("shared", self.get_model(state))
        return ((k, shared | m["own"]) for k, m in sorted(memory.items()))

    def _start_network(self, client: Client) -> State:
        gate = {k: torch.zeros_like(v) for k, v in client.net.state_dict().items() if k.startswith("gate.")}
        return under("private", client.initial) | gate


class Mixture(Net):
    """Shared model, private model and gate as one network; [b, ...] -> [b, C] log-probabilities."""

    def __init__(self, net: Net, gated: bool = True) -> None:
        super().__init__((), 0)
        width = next(p.shape[1] for p in net.head.parameters() if p.dim() == 2)
        self.shared, self.private = copy.deepcopy(net), copy.deepcopy(net)
        self.gate = nn.Linear(width, 1, device=next(net.parameters()).device)
        self._gated = gated

    def forward(self, x: Tensor) -> Tensor:
        h = self.shared.features(x)
        shared = log_softmax(self.shared.head(h), 1)
        if not self._gated:
            return shared
        private, a = log_softmax(self.private(x), 1), self.gate(h)  # [b, C], [b, 1]
        return torch.logaddexp(shared + logsigmoid(a), private + logsigmoid(-a))


def under(part: str, state: State) -> State:
    """A state with the names it has inside a part of the mixture."""
    return {f"{part}.{k}": v for k, v in state.items()}


def inside(part: str, state: State) -> State:
    """The converse."""
    start = f"{part}."
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
