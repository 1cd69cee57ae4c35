"""Ditto: every client keeps a model of its own, pulled towards the global one.

Li, Hu, Beirami, Smith. Ditto: Fair and Robust Federated Learning Through Personalization.
ICML 2021. arXiv:2012.04221, Algorithm 1.

The global model w is FedAvg's, whatever `strength` (lambda) is. Each time a client takes part it also
trains its own model v_k, for as many epochs over the same data, starting where it left off:

    v_k <- v_k - eta ( grad F_k(v_k) + lambda (v_k - w) )

v_k starts as the initial model and never leaves the client, so the traffic is FedAvg's. lambda = 0 is
training alone. Evaluated and released is w; the v_k give `client_accuracy` and `personal_accuracy`.
"""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.method import LocalConfig, Owned
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import Amount
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Params, PartTraining, Trained


class Ditto(FedAvg):
    card = replace(
        FedAvg.card,
        title="Ditto",
        source="arXiv:2012.04221, Alg. 1",
        text="FedAvg, beside which each client trains a private model of its own that is kept near "
        "the shared one.",
    )

    @settings
    class Config(LocalConfig):
        strength: Amount = Field(
            default=1.0,
            description="lambda: pull of the personal model to the global one; 0 trains alone; the paper "
            "searches {0.1, 1, 2}",
        )

    def finish(self, client: Client, trained: Trained) -> Reply:
        own = client.memory.get("own") or client.initial
        # A stream of its own: the global path draws what FedAvg draws
        v = client.train(
            _OwnTraining(self, self.config.strength), {"global": client.start}, own, stream="own_batches"
        )
        return replace(super().finish(client, trained), memory={"own": v.state})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, m["own"]) for k, m in sorted(memory.items()))


class _OwnTraining(PartTraining):
    """Training of v_k, as the local loop asks for it; const["global"] is w."""

    def __init__(self, method: Ditto, strength: float) -> None:
        super().__init__(method, method.config)
        self._strength = strength

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        w = const["global"]
        return {k: g + self._strength * (params[k] - w[k]) for k, g in grads.items()}
