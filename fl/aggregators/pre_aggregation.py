"""Pre-aggregation: uploads are mixed, then a rule inside works on what comes out."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregation.assumed import AssumingRule, count_attackers, need_majority
from fedaudit.fl.aggregators._rows import mix_rows, square_distances
from fedaudit.fl.aggregators._wrapped import Inner, build_inner
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("bucketing", "nnm")


class Bucketing(RowRule):
    """Bucketing: uploads are put together at random, s by s, and a rule works on the means of these.

    Karimireddy, He, Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing. ICLR 2022.
    arXiv:2006.09365, Algorithm 1. The last bucket may be smaller. Up to f buckets hold a malicious client, so
    the rule inside keeps f. A client counts as kept as far as the rule keeps its bucket.
    """

    title = "Bucketing"
    source = "arXiv:2006.09365, Alg. 1"

    @settings
    class Config(RowRule.Config):
        s: AtLeastOne = Field(default=2, description="uploads in a bucket; 1 is the rule inside alone")
        rule: Inner = "krum"

        def __post_init__(self) -> None:
            build_inner(self.rule)

    def needs(self, heard: int) -> int:
        s = int(self.config.s)
        return s * (build_inner(self.config.rule).needs(-(-heard // s)) - 1) + 1

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n, s = len(rows), self.config.s
        order = torch.randperm(n, generator=context.generator()) if s > 1 else torch.arange(n)
        buckets = torch.split(order, s)
        share = torch.zeros(len(buckets), n, dtype=torch.float64)
        for i, bucket in enumerate(buckets):
            share[i, bucket] = 1.0 / len(bucket)
        sizes = torch.tensor([float(len(b)) for b in buckets], dtype=torch.float64)
        found = build_inner(self.config.rule).combine(mix_rows(rows, share), sizes, range(len(buckets)), context)
        kept = {clients[j]: found.kept[i] for i, b in enumerate(buckets) for j in b.tolist() if i in found.kept}
        return Combined(change=found.change, kept=kept, state=found.state)


class NNM(AssumingRule):
    """Nearest-neighbour mixing: every upload is replaced by the mean of the n - f nearest to it, then a
    rule follows.

    Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan. Fixing by Mixing: A Recipe for Optimal Byzantine
    ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772, Algorithm 2. The nearest of each is itself; of
    equal distances the first upload counts.
    """

    title = "Nearest-neighbour mixing"
    source = "arXiv:2302.01772, Alg. 2"

    @settings
    class Config(AssumingRule.Config):
        rule: Inner = "trimmed_mean"

        def __post_init__(self) -> None:
            build_inner(self.rule, self.f)

    def needs(self, heard: int) -> int:
        f = self.config.f
        return max(need_majority(f, heard), build_inner(self.config.rule, f).needs(heard))

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        mixed_rows = mix(rows, count_attackers(self.config.f, len(rows)))
        return build_inner(self.config.rule, self.config.f).combine(mixed_rows, weights, clients, context)


def mix(rows: Tensor, f: int) -> Tensor:
    """[n, P] -> [n, P] float32: of each row the mean of the n - f nearest."""
    n = len(rows)
    near = square_distances(rows).fill_diagonal_(-1.0).argsort(dim=1, stable=True)[:, : n - f]
    share = torch.zeros(n, n, dtype=torch.float64).scatter_(1, near, 1.0 / (n - f))
    return mix_rows(rows, share)
