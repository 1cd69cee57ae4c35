"""Fine-tuned evaluation: what the shared model is worth to each client after a few passes over its own examples.

Personal evaluation of FedAvg and FedBABU (Oh, Kim, Yun, arXiv:2106.06042, sec. 4.2: all layers are trained, the
head too). After the last round every client that has data trains the served model for `fine_tune_epochs` passes
with the run's own optimiser and the plain loss, and its model is scored as its own: the metrics have
`client_accuracy` on the whole test set, and `personal_accuracy` by the owner's mix of classes. Nothing of it is
sent or kept, so nobody else sees it and the run's messages are the same to the last bit. Epochs 0, the default,
evaluate nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, Owned, RoundMethod
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, TrainingHooks


class FineTuning(RoundMethod):
    """A method whose served model may be evaluated so; one that derives from it needs the setting as well."""

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
