"""FedAvg: clients train the global model on their own data, the server averages what comes back.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017. arXiv:1602.05629, Algorithm 1.

    w <- sum_k p_k w_k,    p_k = n_k / sum of n_j over the clients heard

It is RoundMethod with its defaults; everything else is described by how it differs from this.

What fine-tuning makes of the model may be evaluated at the end (as Oh, Kim, Yun, arXiv:2106.06042, sec. 4.2,
where all layers are trained, the head too). After the last round every client that has data trains the model
that it uses for `fine_tune_epochs` passes with the run's own optimiser and the plain loss, and the result is
scored as its own: the metrics have `client_accuracy` on the whole test set, and `personal_accuracy` by the
owner's mix of classes. Nothing of it is sent or kept, so nobody else sees it and the run's messages are the same
to the last bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, Owned, RoundMethod
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, TrainingHooks


class FedAvg(RoundMethod):
    card = Card(
        title="FedAvg",
        source="arXiv:1602.05629, Alg. 1",
        text="Clients train the shared model on their own data for a few epochs; the server "
        "averages the models they return, weighted by how many examples each holds.",
    )

    @settings
    class Config(LocalConfig):
        fine_tune_epochs: AtLeastZero = Field(
            default=0,
            description="passes of each client over its own examples after which the last model is evaluated "
            "as its own; 0 does not",
        )

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        own = self.get_own_models(state, memory)
        if not getattr(self.config, "fine_tune_epochs", 0) or t < self.config.rounds - 1:
            yield from own
            return
        models = dict(own)
        for k in federation.members:  # one at a time: each is scored before the next is trained
            job = ("fine_tune", t, models.get(k, self.get_model(state)), k)
            [reply] = federation.workers.map("work_on_rows", [job])
            yield k, reply.message[Kind.LOCAL_MODEL]

    def get_own_models(self, state: Tree, memory: Mapping[int, Tree]) -> Owned:
        """Models of clients' own before any fine-tuning, with their owners; other clients use the served one."""
        return iter(())

    def fine_tune(self, client: Client) -> Reply:
        """The model it was given after training on its examples, all layers."""
        trained = client.train(_Plain(self.config), {}, stream="fine_tuning")
        return Reply(message={Kind.LOCAL_MODEL: trained.state}, examples=len(client.y))


class _Plain(TrainingHooks):
    """Training with the plain loss, as the local loop wants it."""

    def __init__(self, config: Any) -> None:
        self.config = replace(config, local_epochs=config.fine_tune_epochs)

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return net.loss(x, y)
