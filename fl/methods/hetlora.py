"""HetLoRA: federated adapters of different ranks; each client has as many directions as its device can train.

Cho, Liu, Xu, Fahrezi, Joshi. Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models. EMNLP
2024. arXiv:2401.06432, section 3. A client is sent the first r_k rows of A and columns of B; what it sends is
padded with zeros and weighted by |B_k A_k|_F. Its loss may count the last rows and columns, from share `keep` of
its rank on, and where these shrank in a round they are cut off. Changes: the norm is over all adapted layers
together, and client k has rank `ranks[k mod len]`. Where all have the full rank and one client answers it is
fedlora.
"""

import math
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, read_model
from fedaudit.fl.families.adapters import A, B, compute_products, list_factors
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedlora import FedLoRA, MeanProduct
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message


class HetLoRA(FedLoRA):
    card = replace(
        FedLoRA.card,
        title="HetLoRA",
        source="arXiv:2401.06432",
        text="Clients train adapters of the rank that their device can hold; the server pads them with zeros and "
        "weights them by how large a change they stand for.",
        uplink=(Kind.ADAPTER,),
    )

    @settings
    class Config(FedLoRA.Config):
        ranks: tuple[AtLeastOne, ...] = Field(
            default=(2, 4, 8),
            min_length=1,
            description="of clients 0, 1, ... and again; at most that of the adapters",
        )
        keep: PositiveShare = Field(
            default=1.0, description="gamma: share of a client's rank that is never cut off; 1 cuts nothing"
        )
        tail_weight: Amount = Field(
            default=0.0, description="lambda: weight of the last rows and columns in the local loss"
        )

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        most = min(len(f.a) for f in list_factors(model))
        if max(self.config.ranks) > most:
            raise UserError(
                f"method.ranks go to {max(self.config.ranks)}, and adapters have rank {most}",
                hint=f"federation.adapters: {{rank: {max(self.config.ranks)}}}",
                key="method.ranks",
            )
        ranks = [self.config.ranks[k % len(self.config.ranks)] for k in range(len(federation.parts))]
        return {"model": model, "ranks": torch.tensor(ranks)}

    def broadcast(self, state: Tree) -> Message:
        return {}  # to each client the part of its rank

    def send_to(self, state: Tree, client: int) -> Message:
        return {Kind.GLOBAL_MODEL: cut(state["model"], int(state["ranks"][client]))}

    def compute_constants(self, client: Client) -> Constants:
        return {"tail": self._mark_tail(client.start)}

    def _mark_tail(self, start: State) -> Tensor:
        """[rank] 1 for the rows of A that may be cut off, 0 for others."""
        a = next(list_factors(start)).a
        rank, places = count_rank(start), torch.arange(len(a), device=a.device)
        tail: Tensor = (places >= max(1, int(self.config.keep * rank))) & (places < rank)
        return tail.to(a.dtype)

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        loss = super().loss(net, x, y, const)
        if not self.config.tail_weight:
            return loss
        penalty: Tensor = self.config.tail_weight * measure_tail(dict(net.weights), const["tail"])
        return loss + penalty

    def finish(self, client: Client, trained: Trained) -> Reply:
        start = {k: v.cpu() for k, v in client.start.items()}
        tail, sent = self._mark_tail(start), trained.state
        if tail.any() and measure_tail(sent, tail) < measure_tail(start, tail):
            sent = cut(sent, count_rank(start) - int(tail.sum()))
        return replace(super().finish(client, trained), message={Kind.ADAPTER: sent})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        before: State = state["model"]
        ranks, heard = state["ranks"].clone(), list(deliveries)
        mean, products = deliveries.average(), MeanProduct(before)
        sizes = [measure_product(read_model(d.message)) for d in heard]
        for d, size in zip(heard, sizes, strict=True):
            weight, sent = size if any(sizes) else 1.0, read_model(d.message)
            products.add(d, weight)
            mean.add(d.client, sent, weight, cut(before, int(ranks[d.client])))
            ranks[d.client] = min(int(ranks[d.client]), max(1, count_rank(sent)))
        model = before | mean.value()
        error = self.scale * products.compute_distance(compute_products(model))
        return state | {"model": model, "ranks": ranks, "aggregation_error": error}


def cut(state: State, rank: int) -> State:
    """A state whose adapters have zeros behind the first `rank` rows of A and columns of B."""
    new = dict(state)
    for f in list_factors(state):
        keep = torch.arange(len(f.a), device=f.a.device) < rank
        new[f.layer + A], new[f.layer + B] = f.a * keep[:, None], f.b * keep
    return new


def count_rank(state: State) -> int:
    """The last row of any A, or column of B, that is not zero, counted from 1."""
    used = torch.stack([f.a.any(1) | f.b.any(0) for f in list_factors(state)]).any(0)
    return int(used.nonzero().max()) + 1 if used.any() else 0


def measure_tail(state: State, tail: Tensor) -> Tensor:
    """Sum over layers of |B|_F |A|_F of the rows and columns that are marked."""
    least = 1e-24  # whose root has a slope, where that of 0 has none
    sizes = [
        ((f.a * tail[:, None]).square().sum() + least).sqrt() * ((f.b * tail).square().sum() + least).sqrt()
        for f in list_factors(state)
    ]
    return torch.stack(sizes).sum()


def measure_product(state: State) -> float:
    """|B A|_F over all layers together."""
    return math.sqrt(sum(float(product.square().sum()) for product in compute_products(state).values()))
