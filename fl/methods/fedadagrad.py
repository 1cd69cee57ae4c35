"""FedAdagrad: FedAvg whose server steps like Adagrad.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithm 2.

Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

    v <- v + delta^2,    w <- w + server_lr * delta / (sqrt(v) + kappa)

v starts at kappa^2 and never shrinks. Sends what FedAvg sends.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fl.families.server_optimiser import AdaptiveOptimiser
from fl.methods.fedavg import FedAvg
from fl.ranges import BelowOne


class FedAdagrad(AdaptiveOptimiser):
    card = replace(
        FedAvg.card,
        title="FedAdagrad",
        source="arXiv:2003.00295, Alg. 2",
        text="FedAvg whose server adapts its step size to each weight, "
        "from how much that weight changed in all rounds so far.",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(AdaptiveOptimiser.Config):
        beta1: Annotated[BelowOne, Field(description="decay of the first moment; the paper uses none here")] = 0.0

    def second(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared
