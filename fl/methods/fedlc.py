"""FedLC: FedAvg whose clients need larger margins for the classes they seldom see.

Zhang, Li, Li, Xu, Wu, Ding, Wu. Federated Learning with Label Distribution Skew via Logits Calibration.
ICML 2022. arXiv:2209.00189, eq. 6. Cross-entropy on z_c - tau n_{k,c}^(-1/4); classes the client lacks
have an infinite offset and are masked. The paper leaves the true class out of the denominator, which
others report to collapse; it is kept unless `exclude_true_class`. tau = 0 with every class present is
FedAvg; with missing classes it is the softmax over the client's own classes. Offsets use raw counts, so
the same label distribution with more data has smaller margins.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle


class FedLC(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedLC",
        needs="classes",
        source="arXiv:2209.00189, eq. 6",
        text="FedAvg whose clients must be more certain of classes they have few examples of, and leave "
        "classes alone that they have none of.",
    )

    @settings
    class Config(LocalConfig):
        tau: Amount = Field(default=1.0, description="scale of the margins n ** (-1/4); 1 is the paper's")
        exclude_true_class: bool = Field(
            default=False, description="whether the true class is left out of the denominator, as printed"
        )

    def compute_constants(self, client: Client) -> Constants:
        counts = client.counts.double()
        offset = self.config.tau * counts.clamp(min=1).pow(-0.25)
        offset = torch.where(counts > 0, offset, torch.inf)
        # Only differences matter; with equal counts they are exact zeros
        return {"offset": (offset - offset.min()).float()}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        logits = net(x) - const["offset"]
        if not self.config.exclude_true_class:
            return cross_entropy(logits, y)
        own = logits.gather(1, y[:, None])[:, 0]
        classes = torch.arange(logits.shape[1], device=y.device)
        others = logits.masked_fill(classes == y[:, None], -torch.inf)
        # A client of one class has no others, and nothing to tell its class from
        several = const["offset"].isfinite().sum() > 1
        others = torch.where(several, others, torch.zeros_like(others))
        loss: Tensor = torch.where(several, others.logsumexp(1) - own, torch.zeros_like(own))
        return loss.mean()
