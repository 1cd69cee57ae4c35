"""FedOpt: FedAvg whose server treats the mean change as a gradient to step along, in four ways.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithm 1 (FedOpt). With the weighted mean of the clients' models m,

    delta = m - w,    w <- w + server_lr * direction(delta, moments)

Clients do what FedAvg's do. Only parameters are stepped: running statistics of normalisation layers
are averaged, because a momentum could make a variance negative.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import NamedTuple

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

PLUGINS = ("fedavgm", "fedadam", "fedyogi", "fedadagrad")


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


class FedAvgM(ServerOptimiser):
    """FedAvgM: FedAvg with momentum on the server.

    Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification. 2019. arXiv:1909.06335 (FedAvgM).

    Differs from FedAvg in the server's step. With the mean change delta = mean of w_k - w,

        v <- server_momentum * v + delta,    w <- w + server_lr * v

    so server_momentum = 0 and server_lr = 1 is FedAvg, bit for bit. Sends what FedAvg sends.
    """

    card = replace(
        FedAvg.card,
        title="FedAvgM",
        source="arXiv:1909.06335",
        text="FedAvg whose server keeps part of the direction of earlier rounds, which smooths "
        "out rounds with unusual clients.",
    )

    @settings
    class Config(ServerOptimiser.Config):
        server_momentum: BelowOne = Field(default=0.9, description="rho_s: server momentum; 0 is FedAvg")

    def moments(self, zeros: State) -> dict[str, State]:
        return {"velocity": zeros}

    def direction(self, delta: State, moments: dict[str, State]) -> Step:
        keep = self.config.server_momentum
        velocity = {k: keep * moments["velocity"][k] + d for k, d in delta.items()}
        return Step(velocity, {"velocity": velocity})


class FedAdam(AdaptiveOptimiser):
    """FedAdam: FedAvg whose server steps like Adam.

    The paper's Algorithm 2.

    Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

        m <- beta1 m + (1 - beta1) delta
        v <- beta2 v + (1 - beta2) delta^2
        w <- w + server_lr * m / (sqrt(v) + kappa)

    Sends what FedAvg sends.
    """

    card = replace(
        FedAvg.card,
        title="FedAdam",
        source="arXiv:2003.00295, Alg. 2",
        text="FedAvg whose server adapts its step size to each weight, "
        "from how much that weight changed in recent rounds.",
    )

    @settings
    class Config(AdaptiveOptimiser.Config):
        beta2: BelowOne = Field(default=0.99, description="decay of the second moment; 0 keeps no memory")

    def second(self, v: Tensor, squared: Tensor) -> Tensor:
        beta2: float = self.config.beta2
        return beta2 * v + (1 - beta2) * squared


class FedYogi(FedAdam):
    """FedYogi: FedAvg whose server steps like Yogi.

    The paper's Algorithm 2.

    Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

        m <- beta1 m + (1 - beta1) delta
        v <- v - (1 - beta2) delta^2 sign(v - delta^2)
        w <- w + server_lr * m / (sqrt(v) + kappa)

    so v changes by a share of delta^2 whatever its own size, where FedAdam forgets in proportion to v.
    Sends what FedAvg sends.
    """

    card = replace(
        FedAvg.card,
        title="FedYogi",
        source="arXiv:2003.00295, Alg. 2",
        text="FedAvg whose server adapts its step size to each weight, "
        "from how much that weight changed in recent rounds, forgetting large changes slowly.",
    )

    def second(self, v: Tensor, squared: Tensor) -> Tensor:
        beta2: float = self.config.beta2
        return v - (1 - beta2) * squared * (v - squared).sign()


class FedAdagrad(AdaptiveOptimiser):
    """FedAdagrad: FedAvg whose server steps like Adagrad.

    The paper's Algorithm 2.

    Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

        v <- v + delta^2,    w <- w + server_lr * delta / (sqrt(v) + kappa)

    v starts at kappa^2 and never shrinks. Sends what FedAvg sends.

    The server's rate is .03 by default, 10^-1.5 in the paper's grid, where FedAdam's is .1: with no first moment
    to grow, the first step moves every weight by nearly the whole rate (a change of .01 by .9 of it, in FedAdam
    by .4), and at .1 that throws the initial weights away. Digits, 10 clients of two classes: accuracy of at most
    .36 in the first five rounds of a 256-256 network at .1, of .80 at .03; a ConvNet stays at chance for six. A
    network of 32 units, of 20 clients, does not mind: .87 after 20 rounds at .1, .80 at .03. One seed each.
    """

    card = replace(
        FedAvg.card,
        title="FedAdagrad",
        source="arXiv:2003.00295, Alg. 2",
        text="FedAvg whose server adapts its step size to each weight, "
        "from how much that weight changed in all rounds so far.",
    )

    @settings
    class Config(AdaptiveOptimiser.Config):
        server_lr: Amount = Field(
            default=0.03,
            description="eta_g: step size of the server; FedAdam's first steps are shorter, its rate larger",
        )
        beta1: BelowOne = Field(default=0.0, description="decay of the first moment; the paper uses none here")

    def second(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared
