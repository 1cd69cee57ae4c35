"""FedProx: FedAvg whose clients are pulled back towards the global model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous Networks.
MLSys 2020. arXiv:1812.06127, Algorithm 2. Client k minimises, from the global model w_t,

    F_k(w) + (mu / 2) ||w - w_t||^2                                          (paper, eq. 2)

so mu = 0 is FedAvg to the last bit. `smooth_l1_mean` is what the FedRS authors' code runs under this
name: mu times the mean over tensors of the element-wise mean smooth-L1 distance; its mu has another
scale. Left out: per-client inexactness (Definition 2); slow clients simply take fewer steps.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Params


class FedProx(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedProx",
        source="arXiv:1812.06127, Alg. 2",
        text="FedAvg whose clients are pulled back towards the shared model while they train, so that "
        "very different clients drift apart less.",
    )

    @settings
    class Config(LocalConfig):
        mu: Amount = Field(
            default=0.01, description="proximal weight; 0 is FedAvg; the paper searches {0.001, 0.01, 0.1, 1}"
        )
        prox_form: Literal["squared", "smooth_l1_mean"] = Field(
            default="squared",
            description="the penalty: the paper's squared norm, or the mean smooth-L1 distance of the FedRS "
            "authors' code",
        )

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        mu = self.config.mu
        if self.config.prox_form == "squared":
            return {k: g + mu * (params[k] - start[k]) for k, g in grads.items()}
        # derivative of smooth L1 is the gap, cut at +-1
        share = {k: mu / (len(grads) * g.numel()) for k, g in grads.items()}
        return {k: g + share[k] * (params[k] - start[k]).clamp(-1, 1) for k, g in grads.items()}
