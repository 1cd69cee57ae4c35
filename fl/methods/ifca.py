"""IFCA: several global models; each client trains the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran. An Efficient Framework for Clustered Federated Learning. NeurIPS 2020.
arXiv:2006.04088, Algorithm 1 (model averaging).

The server sends all models w_1 .. w_m. Client k takes the one with the smallest loss on its training
examples, trains it as FedAvg does, and returns it with its number:

    j_k = argmin_j F_k(w_j),    w_j <- sum of p_k w_k over the clients with j_k = j

A model nobody chose stays as it is. One cluster is FedAvg, bit for bit. `shared_extractor` averages
all layers but the head over everybody. The first model is the initial one; the
others are the same weights, shuffled within each parameter: other draws from the same distribution.

Evaluated and released is the model with the most examples behind it so far; `client_accuracy` and
`personal_accuracy` are those of the models the clients last chose. Left out: the variant that
averages gradients, and restarts.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply, evaluate
from fedaudit.fl.clients.delivery import Deliveries, take_model
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, Owned
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class IFCA(FedAvg):
    card = replace(
        FedAvg.card,
        title="IFCA",
        source="arXiv:2006.04088, Alg. 1",
        text="The server keeps several models; each client trains the one that fits its data best, "
        "and says which one it chose.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.CLUSTER_ID),
    )

    @settings
    class Config(LocalConfig):
        clusters: AtLeastOne = Field(default=2, description="number of models; 1 is FedAvg")
        shared_extractor: bool = Field(
            default=False, description="whether all models share one extractor and differ in their heads only"
        )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        first = federation.initial
        varies = self.head if self.config.shared_extractor else self.parameters
        models = {"0": first}
        for j in range(1, self.config.clusters):
            rng = federation.streams.torch("ifca", j)
            models[str(j)] = first | {k: shuffle_entries(first[k], rng) for k in varies}
        members = torch.zeros(self.config.clusters, dtype=torch.float64)
        return {"models": models, "members": members}

    def broadcast(self, state: Tree) -> Message:
        models = state["models"]
        return {Kind.GLOBAL_MODEL: {f"{j}/{k}": v for j in models for k, v in models[j].items()}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        means = [deliveries.average(str(j)) for j in range(self.config.clusters)]
        everybody = deliveries.average("extractor")
        for delivery in deliveries:
            chosen = int(delivery.message[Kind.CLUSTER_ID]["cluster"])
            if str(chosen) not in state["models"]:
                continue  # it claims a cluster that there is not
            model, weight = (delivery.message[Kind.LOCAL_MODEL], delivery.weight(self.config.weighting))
            start, body = state["models"][str(chosen)], {k: v for k, v in model.items() if k not in self.head}
            means[chosen].add(delivery.client, model, weight, start)
            if self.config.shared_extractor:
                everybody.add(delivery.client, body, weight, start)
        models = {
            j: means[int(j)].value() if means[int(j)].total else model for j, model in state["models"].items()
        }
        if self.config.shared_extractor:
            extractor = everybody.value()
            models = {j: model | extractor for j, model in models.items()}
        behind = torch.tensor([m.total for m in means], dtype=torch.float64)
        return {"models": models, "members": state["members"] + behind}

    def get_model(self, state: Tree) -> State:
        model: State = state["models"][str(int(state["members"].argmax()))]
        return model

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, state["models"][str(m["cluster"])]) for k, m in sorted(memory.items()))

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """Choose one of the models that arrived."""
        models = [take_model(client.start, j) for j in range(self.config.clusters)]
        answers = (evaluate(client.net, "forward", model, client.x).double() for model in models)
        losses = [client.net.task.loss(answer, client.y) for answer in answers]
        chosen = torch.stack(losses).argmin().cpu()
        own: Message = {Kind.GLOBAL_MODEL: models[int(chosen)], Kind.CLUSTER_ID: {"cluster": chosen}}
        return replace(client, message=client.message | own)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, chosen = super().finish(client, trained), client.message[Kind.CLUSTER_ID]
        message = reply.message | {Kind.CLUSTER_ID: chosen}
        return replace(reply, message=message, memory={"cluster": int(chosen["cluster"])})


def shuffle_entries(value: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """The entries of a tensor in another order."""
    return value.flatten()[torch.randperm(value.numel(), generator=rng)].reshape(value.shape)
