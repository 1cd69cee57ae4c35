"""FedAvgM: FedAvg with momentum on the server.

Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. 2019. arXiv:1909.06335 (FedAvgM).

Differs from FedAvg in the server's step. With the mean change delta = mean of w_k - w,

    v <- server_momentum * v + delta,    w <- w + server_lr * v

so server_momentum = 0 and server_lr = 1 is FedAvg, bit for bit. Sends what FedAvg sends.
"""

from dataclasses import replace

from pydantic import Field

from fedaudit.fl.families.server_optimiser import ServerOptimiser, Step
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import BelowOne
from fedaudit.fl.runtime.settings import settings


class FedAvgM(ServerOptimiser):
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
