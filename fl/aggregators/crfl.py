"""CRFL: the averaged model is clipped and noised in every round, so that small triggers can do nothing.

Xie, Chen, Chen, Li. CRFL: Certifiably Robust Federated Learning against Backdoor Attacks. ICML 2021.
arXiv:2106.08283, Algorithm 1: the weighted mean of the models is scaled to a norm of at most rho, and Gaussian
noise of standard deviation sigma is added to every weight. The paper's rho may grow with the round (.025 t + 2
on MNIST: `growth`). Changed: the last model is noised as well, which the paper leaves to the smoothing at test
time; the certificate, which takes that noise as drawn and smooths nothing, is in
audit/robustness/poisoned_data.py. Scaling to a norm projects onto a ball, which brings no two models further
apart, and the noise is the same for both.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import sum_weighted_rows
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings


class CRFL(RowRule):
    title = "Clipped and noised model"
    source = "arXiv:2106.08283, Alg. 1"
    nonexpansive = True

    @settings
    class Config(RowRule.Config):
        rho: Positive = Field(default=15.0, description="largest norm of the model in the first round")
        growth: Amount = Field(default=0.0, description="what is added to rho each round")
        sigma: Amount = Field(default=0.01, description="standard deviation of the noise on each weight")

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        if not context.start:
            raise UserError(
                f"{self.title} bounds the length of a model, and the clients of this method send changes",
                hint="use a method whose clients send models, such as fedavg, or aggregator: norm_bound",
                key="aggregator",
            )
        start = torch.cat([v.double().flatten() for v in context.start.values()])
        model = start + sum_weighted_rows(rows, weights / weights.sum())
        bound = self.config.rho + self.config.growth * context.round
        model = model * min(1.0, bound / max(float(model.norm()), 1e-300))
        noise = torch.randn(len(model), generator=context.generator(), dtype=torch.float64)
        kept = dict(zip(clients, weights.tolist(), strict=True))
        return Combined(change=model + self.config.sigma * noise - start, kept=kept)
