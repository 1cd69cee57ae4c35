"""FedBABU: only the body of the model is trained; the head stays at its shared random start.

Oh, Kim, Yun. FedBABU: Toward Enhanced Representation for Federated Image Classification. ICLR 2022.
arXiv:2106.06042, Algorithm 1. Clients train all parameters but the head's (no weight decay on it
either) and send the body alone, so that nothing of the head can tell which classes a client owns.
`head_init: orthogonal` starts with orthonormal rows. With `fine_tune_epochs` each client trains all
layers, the head too, on its own examples before it is evaluated, as the paper does.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained


class FedBABU(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedBABU",
        source="arXiv:2106.06042, Alg. 1",
        text="FedAvg on all layers but the last, which keeps its random start and is never sent back; "
        "clients share what images look like, not how classes are told apart.",
    )

    @settings
    class Config(FedAvg.Config):
        head_init: Literal["default", "orthogonal"] = Field(
            default="default",
            description="how the head, which is never trained, starts: at random or with orthonormal rows",
        )

    def open(self, federation: Federation) -> None:
        super().open(federation)
        if self.config.head_init == "orthogonal":
            model = dict(federation.initial)
            for name in self.head:
                if model[name].dim() == 2:
                    rows = torch.empty_like(model[name])
                    model[name] = torch.nn.init.orthogonal_(
                        rows, generator=federation.streams.torch("fedbabu_head")
                    )
            federation.begin_with(model)

    def is_trainable(self, name: str) -> bool:
        return name not in self.head

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        body = {k: v for k, v in trained.state.items() if k not in self.head}
        return replace(reply, message=reply.message | {Kind.LOCAL_MODEL: body})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {
            "model": state["model"] | deliveries.average_models(state["model"], self.config.weighting)
        }
