"""MOON: clients keep their features near the global model's and away from their own previous ones.

Li, He, Song. Model-Contrastive Federated Learning. CVPR 2021. arXiv:2103.16257, eq. 3 and Algorithm 1.

    loss = cross-entropy - mu log( e^{s(z, z_glob)/T} / (e^{s(z, z_glob)/T} + e^{s(z, z_prev)/T}) )

with cosine similarity s, z the model's features, z_glob and z_prev those of the received and of the
client's previous model, both frozen. mu = 0 is FedAvg. The previous model starts as the initial one and
advances only when an answer was received. Changed: z is the input of the last layer; a model with the
paper's projection head has it inside its features.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, Trained


class MOON(FedAvg):
    card = replace(
        FedAvg.card,
        title="MOON",
        source="arXiv:2103.16257, Alg. 1",
        text="FedAvg whose clients are also trained to see images as the shared model sees them, and "
        "unlike their own model of the last time.",
    )

    @settings
    class Config(LocalConfig):
        mu: Amount = Field(
            default=1.0, description="weight of the contrast; 0 is FedAvg; the paper searches {0.1, 1, 5, 10}"
        )
        temperature: Positive = Field(default=0.5, description="temperature of the contrast; 0.5 is the paper's")

    def compute_constants(self, client: Client) -> Constants:
        if not self.config.mu:
            return {}
        previous = client.memory.get("previous") or client.initial
        return {"global": _copy_layout(client, client.start), "previous": _copy_layout(client, previous)}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not self.config.mu:
            return net.loss(x, y)
        h = net.features(x)
        ahead = net.frozen(const["global"]).features(x)
        behind = net.frozen(const["previous"]).features(x)
        near, far = cosine_similarity(h, ahead), cosine_similarity(h, behind)
        contrast = softplus((far - near) / self.config.temperature).mean()
        loss: Tensor = net.task.loss(net.head(h), y) + self.config.mu * contrast
        return loss

    def finish(self, client: Client, trained: Trained) -> Reply:
        return replace(super().finish(client, trained), memory={"previous": trained.state})


def _copy_layout(client: Client, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state in the memory layout of the client's model: its frozen passes are then as quick."""
    own = dict(client.net.named_parameters()) | dict(client.net.named_buffers())
    return {k: torch.empty_like(own[k]).copy_(v).detach() for k, v in state.items() if k in own}
