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

from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.split import SplitMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import PartTraining


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
            config = replace(self.config, local_epochs=self.config.head_epochs)
            head = PartTraining(self, config, self.is_private)
            start = client.train(head, const, start, stream="head_batches").state
        body = PartTraining(self, self.config, lambda name: not self.is_private(name))
        return self.finish(client, client.train(body, const, start))
