"""Means of all uploads, by the weights that the method gives them."""

from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Combined, Context, RowRule
from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.aggregators._rows import sum_weighted_rows
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("capped_mean", "mean")


class Mean(Aggregator):
    """Mean: every upload counts by the weight its method gives it.

    McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-Efficient Learning of Deep Networks from
    Decentralized Data. AISTATS 2017. arXiv:1602.05629, Algorithm 1. Holds one sum, however many clients
    answer, and needs no single upload: secure aggregation and a central protection allow it.
    """

    title = "Mean"
    source = "arXiv:1602.05629, Alg. 1"
    reads_single_uploads = False
    by_class = of_one = nonexpansive = True

    def begin(self, context: Context) -> Aggregation:
        return _Streaming(context)


class _Streaming(Aggregation):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mean = WeightedMean()

    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        self._mean.add(upload, weight)
        self.total = self._mean.total

    def value(self) -> State:
        return self._mean.value()


class CappedMean(RowRule):
    """Capped mean: the weighted mean, in which no client weighs more than three quarters of them do.

    Weights follow what clients claim of their numbers of examples; a claim a thousand times too large makes
    one client the model. Weights above the 75th percentile of the round, rounded down to a weight that was
    claimed, are lowered to it. Of this project, against count_inflation.
    """

    title = "Mean of capped weights"
    source = "this project"
    by_class = True

    @settings
    class Config(RowRule.Config):
        percentile: PositiveShare = Field(
            default=0.75, description="share of the clients whose weights stay as they are, at least"
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        cap = float(weights.quantile(self.config.percentile, interpolation="lower"))
        capped = weights.clamp(max=cap) if cap > 0 else weights
        kept = dict(zip(clients, capped.tolist(), strict=True))
        return Combined(change=sum_weighted_rows(rows, capped / capped.sum()), kept=kept)
