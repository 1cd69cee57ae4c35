"""Mean: every upload counts by the weight its method gives it.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-Efficient Learning of Deep Networks from
Decentralized Data. AISTATS 2017. arXiv:1602.05629, Algorithm 1. Holds one sum, however many clients answer, and
needs no single upload: secure aggregation and a central protection allow it.
"""

from collections.abc import Mapping

from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Context
from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.model import State


class Mean(Aggregator):
    title = "Mean"
    source = "arXiv:1602.05629, Alg. 1"
    reads_single_uploads = False
    by_class = of_one = True

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
