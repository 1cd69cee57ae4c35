"""FedOpt: FedAvg whose server treats the mean change as a gradient to step along.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithms 1 and 2 (FedAdagrad, FedAdam, FedYogi); Hsu, Qi, Brown. Measuring the
Effects of Non-Identical Data Distribution for Federated Visual Classification. 2019. arXiv:1909.06335 (FedAvgM).

Clients do what FedAvg's do. With delta = weighted mean of the clients' models - w, coordinate by coordinate,

    momentum   m <- beta1 m + delta,                  w <- w + server_lr * m
    others     m <- beta1 m + (1 - beta1) delta,      w <- w + server_lr * m / (sqrt(v) + kappa)
    adagrad    v <- v + delta^2
    adam       v <- beta2 v + (1 - beta2) delta^2
    yogi       v <- v - (1 - beta2) delta^2 sign(v - delta^2)

v starts at kappa^2; there is no bias correction. Momentum with beta1 = 0 and server_lr = 1 is FedAvg, bit for
bit. Only parameters are stepped: running statistics of normalisation layers are averaged, because a momentum
could make a variance negative. Sends what FedAvg sends.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import Amount, BelowOne, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree

# (server_lr, beta1) where nobody says. The paper tunes its rates, and its FedAdagrad has no first moment, so that
# its first steps are longer than those of the others and its rate is smaller
USUAL = {"momentum": (1.0, 0.9), "adagrad": (0.03, 0.0), "adam": (0.1, 0.9), "yogi": (0.1, 0.9)}


class Step(NamedTuple):
    """What to add to the model (before the server's rate), and the new moments; double precision."""

    direction: State
    moments: dict[str, State]


class FedOpt(RoundMethod):
    card = replace(
        FedAvg.card,
        title="FedOpt",
        source="arXiv:2003.00295, Alg. 1 and 2",
        text="FedAvg whose server steps as an optimiser does: with momentum, or with a step size for each "
        "weight, from how much that weight changed in earlier rounds.",
    )

    @settings
    class Config(LocalConfig):
        server: Literal["momentum", "adagrad", "adam", "yogi"] = Field(
            default="adam", description="the server's optimiser: FedAvgM, FedAdagrad, FedAdam or FedYogi"
        )
        server_lr: Amount | None = Field(
            default=None,
            description="eta_g: step size of the server; null: 1 with momentum, 0.03 with adagrad, else 0.1",
        )
        beta1: BelowOne | None = Field(
            default=None,
            description="decay of the first moment, 0 keeps no memory; null: 0 with adagrad, else 0.9",
        )
        beta2: BelowOne = Field(
            default=0.99, description="decay of the second moment with adam and yogi; 0 keeps no memory"
        )
        kappa: Positive = Field(
            default=1e-3, description="tau in the paper: degree of adaptivity, but of momentum"
        )

    @property
    def rate(self) -> float:
        """The server's step size."""
        given: float | None = self.config.server_lr
        return USUAL[self.config.server][0] if given is None else given

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        zeros = {k: torch.zeros_like(model[k], dtype=torch.float64) for k in self.parameters}
        return {"model": model, "moments": self.moments(zeros)}

    def moments(self, zeros: State) -> dict[str, State]:
        """The moments before round 0; `zeros` has the parameters' shapes, in double precision."""
        if self.config.server == "momentum":
            return {"first": zeros}
        return {"first": zeros, "second": {k: z + self.config.kappa**2 for k, z in zeros.items()}}

    def direction(self, delta: State, moments: dict[str, State]) -> Step:
        """One step from the mean change `delta`; both arguments stay as they are."""
        beta1 = USUAL[self.config.server][1] if self.config.beta1 is None else self.config.beta1
        share = 1 if self.config.server == "momentum" else 1 - beta1
        first = {k: beta1 * moments["first"][k] + share * d for k, d in delta.items()}
        if self.config.server == "momentum":
            return Step(first, {"first": first})
        second = {k: self._grow(moments["second"][k], d * d) for k, d in delta.items()}
        along = {k: m / (second[k].sqrt() + self.config.kappa) for k, m in first.items()}
        return Step(along, {"first": first, "second": second})

    def _grow(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new second moment of one parameter from the old one and delta^2."""
        beta2: float = self.config.beta2
        if self.config.server == "adagrad":
            return v + squared
        if self.config.server == "adam":
            return beta2 * v + (1 - beta2) * squared
        return v - (1 - beta2) * squared * (v - squared).sign()

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, model = deliveries.average_models(state["model"], self.config.weighting), state["model"]
        delta = {k: mean[k].double() - model[k].double() for k in self.parameters}
        step = self.direction(delta, state["moments"])
        moved = {k: self._move(mean[k], delta[k], step.direction[k]) for k in self.parameters}
        return {"model": mean | moved, "moments": step.moments}

    def _move(self, mean: Tensor, delta: Tensor, direction: Tensor) -> Tensor:
        # w + rate * direction, counted from the mean: where the step is delta, what is added to the
        # mean is exactly zero, and the result is FedAvg's to the last bit
        return (mean.double() + (self.rate * direction - delta)).to(mean.dtype)
