"""FjORD: each client trains as wide a network as its device can, and the narrow ones are parts of the wide.

Horvath, Laskaridis, Almeida, Leontiadis, Venieris, Lane. FjORD: Fair and Accurate Federated Learning under
heterogeneous targets with Ordered Dropout. NeurIPS 2021. arXiv:2102.13451, Algorithm 1.

Differs from FedAvg in what a client trains: with widths p_1 < ... < p_m = 1, each batch trains the first ceil(p
units) of every hidden layer, p drawn uniformly from the widths that the client can (`sampling: false`: its own
width only, as in the baseline of FreezeFL), and the server averages each number over those who hold it. With
`distillation` the narrow network also learns what the client's widest says, from a KL divergence of that
weight. `widths: [1]` is FedAvg, bit for bit. Networks with normalisation layers are refused; the paper keeps
statistics for each width.
"""

from dataclasses import replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.narrow import Narrow
from fedaudit.fl.families.widths import Masks
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, TrainingHooks


class FjORD(Narrow):
    card = replace(
        FedAvg.card,
        title="FjORD",
        needs="classes",
        source="arXiv:2102.13451, Alg. 1",
        text="FedAvg in which slow devices train a narrower network, made of the first units of each layer of "
        "the shared one.",
        downlink=(Kind.GLOBAL_MODEL, Kind.WIDTH),
        uplink=(Kind.LOCAL_MODEL, Kind.WIDTH, Kind.NUM_EXAMPLES),
        timed=True,
    )

    @settings
    class Config(Narrow.Config):
        sampling: bool = Field(
            default=True, description="whether each batch draws a width up to the client's, or trains that one"
        )
        distillation: Amount = Field(
            default=0.0, description="weight of what the client's widest network says, on narrower batches"
        )

    def train(self, client: Client) -> Reply:
        const, tier = self.compute_constants(client), self.tier(client.message)
        sampled = _Sampled(self, client, tier) if self.config.sampling and tier else self
        return self.finish(client, client.train(sampled, const))


class _Sampled(TrainingHooks):
    """Training that draws a width for each batch, as the local loop wants it."""

    def __init__(self, method: FjORD, client: Client, tier: int) -> None:
        self.config: Any = method.config
        self._tier, self._net, self._rng = tier, client.net, client.generator("width")
        self._masks: list[Masks] = [
            {k: m.to(client.x.device) for k, m in of.items()} for of in method.slices.masks[: tier + 1]
        ]

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        drawn = int(torch.randint(self._tier + 1, (), generator=self._rng))
        if drawn == self._tier:
            return cross_entropy(net(x), y)
        own = self._masks[drawn]
        out = net.replace_weights({k: p * own[k] for k, p in self._net.named_parameters()})(x)
        loss = cross_entropy(out, y)
        if self.config.distillation:
            with torch.no_grad():
                wide = log_softmax(net(x), dim=1)
            said = kl_div(log_softmax(out, dim=1), wide, reduction="batchmean", log_target=True)
            loss = loss + self.config.distillation * said
        return loss
