"""FedLoRA: FedAvg of adapters. Clients train a low-rank change of a frozen model, and send that alone.

Zhang, Vahidian, Kuo, Li, Zhang, Yu, Zhou, Chen. Towards Building the Federated GPT: Federated Instruction Tuning
(FedIT). ICASSP 2024. arXiv:2305.05644, section 3. The server averages the factors A and B apart, and the mean of
products B_k A_k is another matrix than the product of the means: `aggregation_error` of a round is the Frobenius
norm of what lies between them, over all adapted layers and with the adapters' scale. With one client it is 0.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedaudit.fl.clients.delivery import Deliveries, Delivery, read_model
from fedaudit.fl.families.adapters import compute_products, find_scale
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.tree import Tree


class FedLoRA(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedLoRA (FedIT)",
        source="arXiv:2305.05644",
        text="Clients train adapters, changes of low rank to a model that all have and nobody changes, and send "
        "those alone; the server averages both factors of each.",
        uplink=(Kind.ADAPTER, Kind.NUM_EXAMPLES),
    )

    def open(self, federation: Federation) -> None:
        super().open(federation)
        [self.scale] = federation.workers.map("inspect", [find_scale])

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        new = super().round(t, state, memory, federation)
        if federation.tally.delivered and "aggregation_error" in new:
            federation.tally.notes["aggregation_error"] = new["aggregation_error"]
        return new

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        if deliveries.is_summed:  # sums of factors do not tell the mean of their products
            return state | {
                "model": state["model"] | deliveries.average_models(state["model"], self.config.weighting)
            }
        products = MeanProduct(state["model"])
        heard = deliveries.noting(lambda d: products.add(d, d.weight(self.config.weighting)))
        model = state["model"] | heard.average_models(state["model"], self.config.weighting)
        error = self.scale * products.compute_distance(compute_products(model))
        return state | {"model": model, "aggregation_error": error}


class MeanProduct:
    """The weighted mean of clients' products B_k A_k, layer by layer: what adapters that are averaged stand
    for."""

    def __init__(self, start: State) -> None:
        self._start, self._sums, self._weight = start, dict[str, Tensor](), 0.0

    def add(self, delivery: Delivery, weight: float) -> None:
        """One client's; a factor that it did not send is as it received it."""
        for layer, product in compute_products(self._start | read_model(delivery.message)).items():
            self._sums[layer] = self._sums.get(layer, torch.zeros_like(product)) + weight * product
        self._weight += weight

    def compute_distance(self, made: Mapping[str, Tensor]) -> float:
        """Frobenius norm of mean - made over all layers; 0 where all weights are."""
        if not self._weight:
            return 0.0
        gaps = [total / self._weight - made[layer] for layer, total in self._sums.items()]
        return float(torch.stack([gap.square().sum() for gap in gaps]).sum().sqrt()) if gaps else 0.0
