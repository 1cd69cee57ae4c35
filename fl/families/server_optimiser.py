"""Server optimisers: FedAvg whose server treats the mean change as a gradient to step along.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithm 1 (FedOpt). With the weighted mean of the clients' models m,

    delta = m - w,    w <- w + server_lr * direction(delta, moments)

Clients do what FedAvg's do. Only parameters are stepped: running statistics of normalisation layers
are averaged, because a momentum could make a variance negative.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import Amount, BelowOne, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree


class Step(NamedTuple):
    """What to add to the model (before the server's rate), and the new moments; double precision."""

    direction: State
    moments: dict[str, State]


class ServerOptimiser(RoundMethod):
    """Subclasses say with which moments they start, and the direction of a step."""

    @settings
    class Config(LocalConfig):
        server_lr: Amount = Field(default=1.0, description="eta_g: step size of the server; 1 is FedAvg's")

    @abstractmethod
    def moments(self, zeros: State) -> dict[str, State]:
        """The moments before round 0; `zeros` has the parameters' shapes, in double precision."""

    @abstractmethod
    def direction(self, delta: State, moments: dict[str, State]) -> Step:
        """One step from the mean change `delta`; both arguments stay as they are."""

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        zeros = {k: torch.zeros_like(model[k], dtype=torch.float64) for k in self.parameters}
        return {"model": model, "moments": self.moments(zeros)}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, model = deliveries.average_models(state["model"], self.config.weighting), state["model"]
        delta = {k: mean[k].double() - model[k].double() for k in self.parameters}
        step = self.direction(delta, state["moments"])
        moved = {k: self._move(mean[k], delta[k], step.direction[k]) for k in self.parameters}
        return {"model": mean | moved, "moments": step.moments}

    def _move(self, mean: Tensor, delta: Tensor, direction: Tensor) -> Tensor:
        # w + rate * direction, counted from the mean: where the step is delta, what is added to the
        # mean is exactly zero, and the result is FedAvg's to the last bit
        rate: float = self.config.server_lr
        return (mean.double() + (rate * direction - delta)).to(mean.dtype)


class AdaptiveOptimiser(ServerOptimiser):
    """Algorithm 2 of the paper: a first moment, divided by the root of a second one.

        m <- beta1 m + (1 - beta1) delta,    w <- w + server_lr * m / (sqrt(v) + kappa)

    v starts at kappa^2 and there is no bias correction, as in the paper. Subclasses say how v grows.
    """

    @settings
    class Config(ServerOptimiser.Config):
        server_lr: Amount = Field(
            default=0.1, description="eta_g: step size of the server; the paper tunes it, 0.1 or 0.01 are usual"
        )
        beta1: BelowOne = Field(default=0.9, description="decay of the first moment; 0 keeps no memory")
        kappa: Positive = Field(default=1e-3, description="tau in the paper: degree of adaptivity")

    @abstractmethod
    def second(self, v: Tensor, squared: Tensor) -> Tensor:
        """The new second moment of one parameter from the old one and delta^2."""

    def moments(self, zeros: State) -> dict[str, State]:
        return {"first": zeros, "second": {k: z + self.config.kappa**2 for k, z in zeros.items()}}

    def direction(self, delta: State, moments: dict[str, State]) -> Step:
        beta1, kappa = self.config.beta1, self.config.kappa
        first = {k: beta1 * moments["first"][k] + (1 - beta1) * d for k, d in delta.items()}
        second = {k: self.second(moments["second"][k], d * d) for k, d in delta.items()}
        along = {k: m / (second[k].sqrt() + kappa) for k, m in first.items()}
        return Step(along, {"first": first, "second": second})
