"""FedRep: clients share a representation and fit their own last layer to it first.

Collins, Hassani, Mokhtari, Shakkottai. Exploiting Shared Representations for Personalized Federated
Learning. ICML 2021. arXiv:2102.07078, Algorithm 1.

Differs from FedPer in the order of local training: `head_epochs` over the private head with the base
frozen, then `local_epochs` over the base with the head frozen. Only the base is sent and averaged.
With nothing private (`private: []`) it is FedAvg, bit for bit.

Both phases use the same rate and start with an empty momentum. The paper's head steps are
mini-batch steps over the client's data, as here; its analysis assumes an exact solution.
"""

from dataclasses import replace
from typing import Any

from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.split import SplitMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, Params, TrainingHooks


class FedRep(SplitMethod):
    card = replace(
        FedAvg.card,
        title="FedRep",
        source="arXiv:2102.07078, Alg. 1",
        text="Clients share and average all layers but the last; each first fits its own last layer, "
        "then improves the shared ones for it.",
    )

    @settings
    class Config(SplitMethod.Config):
        head_epochs: AtLeastZero = Field(
            default=10, description="passes that train the private part in a round; 0 leaves it as it is"
        )
        local_epochs: AtLeastZero = Field(default=1, description="passes that train the shared part in a round")

    def train(self, client: Client) -> Reply:
        const, start = self.compute_constants(client), client.start
        if self.private(start):
            head = _Phase(self, private=True, epochs=self.config.head_epochs)
            start = client.train(head, const, start, stream="head_batches").state
        body = _Phase(self, private=False, epochs=self.config.local_epochs)
        return self.finish(client, client.train(body, const, start))


class _Phase(TrainingHooks):
    """Training of one part of the model for some epochs, as the local loop asks for it."""

    def __init__(self, method: FedRep, private: bool, epochs: int) -> None:
        self.config: Any = replace(method.config, local_epochs=epochs)
        self._method, self._private = method, private

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return self._method.loss(net, x, y, const)

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        return grads

    def is_trainable(self, name: str) -> bool:
        return self._method.is_private(name) == self._private
