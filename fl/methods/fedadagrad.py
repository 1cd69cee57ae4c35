"""FedAdagrad: FedAvg whose server steps like Adagrad.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithm 2.

Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

    v <- v + delta^2,    w <- w + server_lr * delta / (sqrt(v) + kappa)

v starts at kappa^2 and never shrinks. Sends what FedAvg sends.

The server's rate is .03 by default, 10^-1.5 in the paper's grid, where FedAdam's is .1: with no first moment
to grow, the first step moves every weight by nearly the whole rate (a change of .01 by .9 of it, in FedAdam
by .4), and at .1 that throws the initial weights away. Digits, 10 clients of two classes: accuracy of at most
.36 in the first five rounds of a 256-256 network at .1, of .80 at .03; a ConvNet stays at chance for six. A
network of 32 units, of 20 clients, does not mind: .87 after 20 rounds at .1, .80 at .03. One seed each.
"""

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from fedaudit.fl.families.server_optimiser import AdaptiveOptimiser
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount, BelowOne
from fedaudit.fl.runtime.settings import settings


class FedAdagrad(AdaptiveOptimiser):
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
