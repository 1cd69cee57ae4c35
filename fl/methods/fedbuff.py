"""FedBuff: the server collects a buffer of answers, however old, and steps by their mean.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba. Federated Learning with Buffered Asynchronous
Aggregation. AISTATS 2022. arXiv:2106.06639, Algorithm 1.

Nobody waits (fl/families/asynchronous.py has the clock). When the buffer holds B answers, trained from the
models w_s of earlier steps s,

    w <- w + server_lr * (1/B) sum_k S(t - s_k) (w_k - w_{s_k}),    S(x) = 1 / sqrt(1 + x)

Where all clients start together and B is their number, nothing is stale, and with server_lr = 1 it
is FedAvg with uniform weighting, bit for bit. Only sums of B answers are needed, so secure
aggregation applies to each buffer.

Clients answer at most once in a buffer. Where fewer than B can answer, the buffer closes with those.
"""

from pydantic import Field

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.asynchronous import Asynchronous
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree


class FedBuff(Asynchronous):
    card = Card(
        title="FedBuff",
        source="arXiv:2106.06639, Alg. 1",
        text="The server does not wait for slow clients: it steps whenever a buffer of answers is "
        "full, and lets old answers count less.",
        downlink=(Kind.GLOBAL_MODEL, Kind.STALENESS),
        uplink=(Kind.LOCAL_MODEL, Kind.STALENESS),
        collects=False,
    )

    @settings
    class Config(Asynchronous.Config):
        buffer: AtLeastOne = Field(
            default=10, description="B: answers that make a step of the server; 10 is the paper's"
        )
        concurrency: AtLeastOne = Field(default=20, description="clients that train at a time")
        server_lr: Amount = Field(default=1.0, description="eta_g: step size of the server; 1 is FedAvg's")

    def count_answers_of_step(self) -> int:
        size: int = self.config.buffer
        return size

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        answers, starts, count = deliveries.average(), WeightedMean(), 0
        for delivery in deliveries:
            weight = (1 + self.staleness(delivery, round)) ** -0.5
            start = state["versions"][str(round - self.staleness(delivery, round))]
            answers.add(delivery.client, delivery.message[Kind.LOCAL_MODEL], weight, start)
            starts.add(start, weight)
            count += 1
        mean, start, w = answers.value(), starts.value(), state["model"]
        share = self.config.server_lr * answers.total / count
        moved = {}
        for k in self.parameters:
            m, s = mean[k].double(), start[k].double()
            # w + share (m - s), counted from the mean so that FedAvg's case is the mean exactly
            moved[k] = (m + (w[k].double() - s) + (share - 1) * (m - s)).to(w[k].dtype)
        return state | {"model": mean | moved}
