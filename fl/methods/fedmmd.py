"""FedMMD: two streams; local features are kept distributed like the global model's.

Yao, Huang, Sun. Two-Stream Federated Learning: Reduce the Communication Costs. VCIP 2018.
doi:10.1109/VCIP.2018.8698609.

Differs from FedAvg in one term of the local loss. With h the input of the head on a mini-batch, under
the received model (frozen) and under the one being trained,

    CE + weight * MMD^2( {h_w(x)}, {h_{w_k}(x)} )

so weight = 0 is FedAvg, bit for bit. The kernel is a sum of five Gaussians exp(-d^2 / (b 2^i)),
i = -2..2, where b is the mean squared distance of the joined batch, taken as a constant; diagonals
are included (the biased estimator). At the received model the term and its gradient are zero.
Costs a second forward pass. Sends what FedAvg sends.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle


class FedMMD(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedMMD (two-stream)",
        source="doi:10.1109/VCIP.2018.8698609",
        text="FedAvg whose clients keep the features they learn distributed like those of the received model.",
    )

    @settings
    class Config(LocalConfig):
        weight: Amount = Field(
            default=1e-3,
            description="lambda: weight of the discrepancy; 0 is FedAvg; the FedRS paper compares 1e-4 and 1e-3",
        )

    def compute_constants(self, client: Client) -> Constants:
        return {"received": client.start} if self.config.weight else {}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        if not self.config.weight:
            return net.loss(x, y)
        h = net.features(x)
        received = net.frozen(const["received"]).features(x)
        term: Tensor = self.config.weight * compute_squared_mmd(received.flatten(1), h.flatten(1))
        return net.task.loss(net.head(h), y) + term


def compute_squared_mmd(a: Tensor, b: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples, [m, D] and [n, D] -> []."""
    joined = torch.cat([a, b])
    squared = (joined[:, None] - joined[None]).square().sum(2)  # [m + n, m + n]
    pairs = len(joined) * (len(joined) - 1)
    bandwidth = squared.detach().sum() / pairs + 1e-8
    kernel = torch.stack([(-squared / (bandwidth * 2.0**i)).exp() for i in range(-2, 3)]).sum(0)
    m = len(a)
    return kernel[:m, :m].mean() + kernel[m:, m:].mean() - 2 * kernel[:m, m:].mean()
