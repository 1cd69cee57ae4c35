"""FedAsync: the server mixes every answer into the global model as it arrives.

Xie, Koyejo, Gupta. Asynchronous Federated Optimization. 2019. arXiv:1903.03934, Algorithm 1.

Nobody waits (fl/families/asynchronous.py has the clock). When client k answers with w_k, trained from the model
of step s, the server's step t is

    w <- (1 - alpha_t) w + alpha_t w_k,    alpha_t = alpha * S(t - s)

with S(x) = 1 (constant), (x + 1)^-a (polynomial), or 1 up to b and 1 / (a (x - b) + 1) beyond (hinge).
Clients minimise F_k + (rho / 2) ||w - w_s||^2. With one client at a time, alpha = 1 and rho = 0 the
model is trained by one client after the other.

`rounds` counts answers, so evaluate seldom. The server reads every single upload: there is
no sum for secure aggregation to hide it in.
"""

from typing import Literal

from pydantic import Field

from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.asynchronous import Asynchronous
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Params


class FedAsync(Asynchronous):
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
        alpha: PositiveShare = Field(default=0.6, description="weight of a fresh answer; 0.6 is the paper's")
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
