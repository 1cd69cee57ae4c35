"""FedAdam: FedAvg whose server steps like Adam.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated Optimization.
ICLR 2021. arXiv:2003.00295, Algorithm 2.

Differs from FedAvg in the server's step, coordinate by coordinate. With the mean change delta,

    m <- beta1 m + (1 - beta1) delta
    v <- beta2 v + (1 - beta2) delta^2
    w <- w + server_lr * m / (sqrt(v) + kappa)

v starts at kappa^2; there is no bias correction. Sends what FedAvg sends.
"""

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from fedaudit.fl.families.server_optimiser import AdaptiveOptimiser
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import BelowOne
from fedaudit.fl.runtime.settings import settings


class FedAdam(AdaptiveOptimiser):
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
