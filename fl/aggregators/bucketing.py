"""Bucketing: uploads are put together at random, s by s, and a rule works on the means of these.

Karimireddy, He, Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing. ICLR 2022.
arXiv:2006.09365, Algorithm 1. The last bucket may be smaller. Up to f buckets hold a malicious client, so the
rule inside keeps f. A client counts as kept as far as the rule keeps its bucket.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._columns import mixed
from fedaudit.fl.aggregators._wrapped import Inner, inner
from fedaudit.fl.runtime.ranges import AtLeastOne


class Bucketing(RowRule):
    title = "Bucketing"
    source = "arXiv:2006.09365, Alg. 1"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        s: Annotated[AtLeastOne, Field(description="uploads in a bucket; 1 is the rule inside alone")] = 2
        rule: Inner = "krum"

        def __post_init__(self) -> None:
            inner(self.rule)

    def needs(self) -> int:
        return int(self.config.s) * (inner(self.config.rule).needs() - 1) + 1

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        n, s = len(rows), self.config.s
        order = torch.randperm(n, generator=context.generator()) if s > 1 else torch.arange(n)
        buckets = torch.split(order, s)
        share = torch.zeros(len(buckets), n, dtype=torch.float64)
        for i, bucket in enumerate(buckets):
            share[i, bucket] = 1.0 / len(bucket)
        sizes = torch.tensor([float(len(b)) for b in buckets], dtype=torch.float64)
        found = inner(self.config.rule).combine(mixed(rows, share), sizes, range(len(buckets)), context)
        kept = {clients[j]: found.kept[i] for i, b in enumerate(buckets) for j in b.tolist() if i in found.kept}
        return Combined(change=found.change, kept=kept, state=found.state)
