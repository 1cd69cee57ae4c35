"""FedAsync: the server waits for nobody; it mixes in each answer as it arrives, or so many of them together.

Xie, Koyejo, Gupta. Asynchronous Federated Optimization. 2019. arXiv:1903.03934, Algorithm 1; Nguyen, Malik, Zhan,
Yousefpour, Rabbat, Malek, Huba. Federated Learning with Buffered Asynchronous Aggregation. AISTATS 2022.
arXiv:2106.06639, Algorithm 1 (FedBuff). fl/families/asynchronous.py has the clock.

Client k answers with w_k, trained from the model w_s of step s. With `mix: each` the server's step t is

    w <- (1 - alpha_t) w + alpha_t w_k,    alpha_t = alpha * S(t - s)

and with `mix: buffer`, when the buffer holds B answers,

    w <- w + server_lr * (1/B) sum_k S(t - s_k) (w_k - w_{s_k})

where S(x) = 1 (constant), (x + 1)^-a (polynomial; FedBuff's has a = 1/2), or 1 up to b and 1 / (a (x - b) + 1)
beyond (hinge). Clients minimise F_k + (rho / 2) ||w - w_s||^2. With one client at a time, alpha = 1 and rho = 0
the model is trained by one client after the other. Where all clients start together and B is their number,
nothing is stale, and with server_lr = 1 and rho = 0 it is FedAvg with uniform weighting, bit for bit.

`rounds` counts steps of the server, so evaluate seldom where each answer is one. The server then reads every
single upload: there is no sum for secure aggregation to hide it in. Of a buffer only sums are needed. Clients
answer at most once in a buffer. Where fewer than B can answer, it closes with those."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.asynchronous import Asynchronous
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Params

PLUGINS = ("fedasync", "fedbuff")


class FedAsync(Asynchronous):
    """FedAsync: the server mixes every answer into the global model as it arrives."""

    card = Card(
        title="FedAsync",
        source="arXiv:1903.03934, Alg. 1",
        text="The server does not wait: it mixes each client's model into the shared one when it "
        "arrives, the less the older it is.",
        downlink=(Kind.GLOBAL_MODEL, Kind.STALENESS),
        uplink=(Kind.LOCAL_MODEL, Kind.STALENESS),
        collects=False,
    )

    @settings
    class Config(Asynchronous.Config):
        mix: Literal["each", "buffer"] = Field(
            default="each",
            description="whether the server steps at each answer, or at a buffer of them (FedBuff)",
        )
        buffer: AtLeastOne = Field(
            default=10, description="B: answers that make a step with mix: buffer; 10 is the paper's"
        )
        alpha: PositiveShare = Field(
            default=0.6, description="weight of a fresh answer with mix: each; 0.6 is the paper's"
        )
        server_lr: Amount = Field(
            default=1.0, description="eta_g: step size of the server with mix: buffer; 1 is FedAvg's"
        )
        decay: Literal["constant", "polynomial", "hinge"] = Field(
            default="polynomial", description="S: how the weight falls with staleness; constant ignores it"
        )
        exponent: Amount = Field(default=0.5, description="a of the polynomial decay")
        hinge_slope: Amount = Field(default=10.0, description="a of the hinge decay")
        hinge_after: AtLeastZero = Field(
            default=4, description="b of the hinge decay: staleness, in server steps, from which the weight falls"
        )
        rho: Amount = Field(
            default=0.005, description="proximal weight: pull of local training towards the received model"
        )

    def count_answers_of_step(self) -> int:
        return int(self.config.buffer) if self.config.mix == "buffer" else 1

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        rho = self.config.rho
        return {k: g + rho * (params[k] - start[k]) for k, g in grads.items()} if rho else grads

    def weight_of(self, staleness: int) -> float:
        """S(x)."""
        c, x = self.config, staleness
        if c.decay == "constant":
            return 1.0
        if c.decay == "polynomial":
            return float((x + 1) ** -c.exponent)
        return 1.0 if x <= c.hinge_after else 1 / (c.hinge_slope * (x - c.hinge_after) + 1)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return (self._step if self.config.mix == "buffer" else self._mix)(state, deliveries, round)

    def _mix(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        model = state["model"]
        for delivery in deliveries:
            stale = self.staleness(delivery, round)
            alpha, one = self.config.alpha * self.weight_of(stale), deliveries.average()
            one.add(
                delivery.client, delivery.message[Kind.LOCAL_MODEL], 1.0, state["versions"][str(round - stale)]
            )
            answer = one.value()
            model = {
                k: ((1 - alpha) * w.double() + alpha * answer[k].double()).to(w.dtype)
                if w.is_floating_point()
                else answer[k]
                for k, w in model.items()
            }
        return state | {"model": model}

    def _step(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        answers, starts, count = deliveries.average(), WeightedMean(), 0
        for delivery in deliveries:
            stale = self.staleness(delivery, round)
            weight, start = self.weight_of(stale), state["versions"][str(round - stale)]
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


class FedBuff(FedAsync):
    """FedBuff: the server collects a buffer of answers, however old, and steps by their mean."""

    card = replace(
        FedAsync.card,
        title="FedBuff",
        source="arXiv:2106.06639, Alg. 1",
        text="The server does not wait for slow clients: it steps whenever a buffer of answers is "
        "full, and lets old answers count less.",
    )

    @settings
    class Config(FedAsync.Config):
        mix: Literal["buffer"] = Field(default="buffer", description="as FedAsync's, and no other")
        concurrency: AtLeastOne = Field(default=20, description="clients that train at a time")
        rho: Amount = Field(default=0.0, description="as FedAsync's; the paper has none")
