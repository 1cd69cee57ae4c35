"""Clipping: uploads are scaled down to a largest norm, or to a largest distance from a centre."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import factors, lengths, sum_weighted_rows
from fedaudit.fl.aggregators._wrapped import Inner, build_inner
from fedaudit.fl.runtime.ranges import AtLeastOne, Positive
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("centered_clipping", "clipping", "norm_bound")


class Clipping(RowRule):
    """Clipping: every upload is scaled down to a largest norm, then a rule follows.

    What ByzFL (arXiv:2505.24802) puts before nearest-neighbour mixing. Without a `norm` it is the median norm
    of the round. With the mean behind it, norm_bound is the same and takes weights.
    """

    title = "Clipping"
    source = "arXiv:2505.24802"

    @settings
    class Config(RowRule.Config):
        norm: Positive | None = Field(
            default=None, description="largest norm of a change; null is the round's median norm"
        )
        rule: Inner = "trimmed_mean"

        def __post_init__(self) -> None:
            build_inner(self.rule)

    def needs(self, heard: int) -> int:
        return build_inner(self.config.rule).needs(heard)

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        scaled = rows * factors(rows, self.config.norm)[:, None].float()
        return build_inner(self.config.rule).combine(scaled, weights, clients, context)


class NormBound(RowRule):
    """Norm bound: every upload is scaled down to a largest norm, and then averaged as ever.

    Sun, Kairouz, Suresh, McMahan. Can You Really Backdoor Federated Learning? 2019. arXiv:1911.07963, sec. 4,
    without its noise. Without a `norm` it is the median norm of the round. Weights are the method's.
    """

    title = "Norm bound"
    source = "arXiv:1911.07963, sec. 4"
    of_one = True

    @settings
    class Config(RowRule.Config):
        norm: Positive | None = Field(
            default=None, description="largest norm of a change; null is the round's median norm"
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        share = factors(rows, self.config.norm) * weights
        kept = dict(zip(clients, share.tolist(), strict=True))
        return Combined(change=sum_weighted_rows(rows, share / weights.sum()), kept=kept)


class CenteredClipping(RowRule):
    """Centered clipping: uploads are drawn to last round's result, none from further than tau.

    Karimireddy, He, Jaggi. Learning from History for Byzantine Robust Optimization. ICML 2021.
    arXiv:2012.10333, Algorithm 2, `steps` times:

        v <- v + (1/n) sum_i (d_i - v) min(1, tau / ||d_i - v||)

    v is the change of the round before, and 0 in the first. Clients weigh alike. Without a `tau` it is the
    median distance of the round's uploads to that v, the same in all steps: the first clips half of them.
    """

    title = "Centered clipping"
    source = "arXiv:2012.10333, Alg. 2"

    @settings
    class Config(RowRule.Config):
        tau: Positive | None = Field(
            default=None, description="largest distance to v; null is the median of the distances"
        )
        steps: AtLeastOne = Field(default=3, description="clipping steps a round")

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        v = context.state.get("v", torch.zeros(rows.shape[1])).double()
        factors = torch.ones(len(rows), dtype=torch.float64)
        tau = float(lengths(rows, v).quantile(0.5)) if self.config.tau is None else self.config.tau
        for _ in range(self.config.steps):
            far = lengths(rows, v)
            factors = (tau / far.clamp(min=1e-300)).clamp(max=1.0)
            share = factors / len(rows)
            v = v * (1 - share.sum()) + sum_weighted_rows(rows, share)
        kept = dict(zip(clients, factors.tolist(), strict=True))
        return Combined(change=v, kept=kept, state={"v": v})
