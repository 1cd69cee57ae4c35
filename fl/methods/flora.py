"""FLoRA: federated adapters that are stacked, so that their mean is exact, and folded into the model below them.

Wang, Shen, He, Sun, Wang, Lyu, Li. FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank
Adaptations. NeurIPS 2024. arXiv:2409.05976, section 3.2. The server puts the A_k on top of each other and the p_k
B_k side by side; their product is sum_k p_k B_k A_k, which every client adds to its weights. Each round begins
with new adapters, A drawn and B zero. Changes: all clients have one rank; the server sends the folded change of
each adapted layer in the place of the stack, so that a client that missed a round has the same weights; and the
aggregator may be another rule than the mean, which then works on the products.
"""

from dataclasses import replace

import torch

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, read_model
from fedaudit.fl.families.adapters import FOLDED, A, B, compute_products, list_factors
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedlora import FedLoRA, MeanProduct
from fedaudit.fl.model import State
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained


class FLoRA(FedLoRA):
    card = replace(
        FedLoRA.card,
        title="FLoRA",
        source="arXiv:2409.05976",
        text="Clients train adapters and send those alone; the server adds the exact mean of what they stand for "
        "to the model below them, and every round begins with new ones.",
        folds_adapters=True,
    )

    def open(self, federation: Federation) -> None:
        super().open(federation)
        self.streams = federation.streams
        # What the server's rule works on is the folded change of each layer
        self.parameters += tuple(name for name in federation.initial if name.endswith(FOLDED))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        adapter = {name: value for name, value in trained.state.items() if not name.endswith(FOLDED)}
        return replace(reply, message=reply.message | {Kind.ADAPTER: adapter})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        before: State = state["model"]
        mean, products = deliveries.average(), MeanProduct(before)
        for d in deliveries:
            weight = d.weight(self.config.weighting)
            products.add(d, weight)
            mean.add(d.client, self.fold(before, read_model(d.message)), weight, before)
        model = before | mean.value()
        folded = {
            f.layer: (model[f.layer + FOLDED].double() - before[f.layer + FOLDED].double()) / self.scale
            for f in list_factors(before)
        }
        error = self.scale * products.compute_distance(folded)
        return state | {"model": self.renew(model, round), "aggregation_error": error}

    def fold(self, start: State, sent: State) -> State:
        """A client's model without its adapters: what they stand for is in the folded change of their layers."""
        rest = {k: v for k, v in sent.items() if not k.endswith((A, B))}
        folded = {
            layer + FOLDED: (start[layer + FOLDED].double() + self.scale * product).float()
            for layer, product in compute_products(start | sent).items()
        }
        return rest | folded

    def renew(self, model: State, round: int) -> State:
        """The model with new adapters: A drawn from the stream of the round, B zero."""
        new = dict(model)
        for f in list_factors(model):
            draws = self.streams.torch("flora", round, f.layer)
            new[f.layer + A] = torch.randn(f.a.shape, generator=draws) * f.a.shape[1] ** -0.5
            new[f.layer + B] = torch.zeros_like(f.b)
        return new
