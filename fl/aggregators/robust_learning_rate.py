"""Robust learning rate: where too few clients agree on the sign, the model moves the other way.

Ozdayi, Kantarcioglu, Gel. Defending against Backdoors in Federated Learning with Robust Learning Rate. AAAI 2021.
arXiv:2007.03767, eq. 3: with s = |sum_i sign(d_i)| of each weight, the weighted mean is added where s >= theta
and subtracted elsewhere. Changed: theta is a share of the clients that are heard, so that it holds when some are
absent.
"""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import by_columns, sum_weighted_rows
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings


class RobustLearningRate(RowRule):
    title = "Robust learning rate"
    source = "arXiv:2007.03767, eq. 3"

    @settings
    class Config(RowRule.Config):
        theta: Share = Field(
            default=0.4, description="by how much one sign has to outweigh, as a share of the clients heard"
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        agreed = by_columns(rows, lambda block: np.abs(np.sign(block).sum(axis=0, dtype=np.float64)))
        rate = torch.where(agreed >= self.config.theta * len(rows) - 1e-9, 1.0, -1.0)
        kept = dict(zip(clients, weights.tolist(), strict=True))
        return Combined(change=sum_weighted_rows(rows, weights / weights.sum()) * rate, kept=kept)
