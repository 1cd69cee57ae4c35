"""ReBaFL: local training re-balanced against label skew, helped by class prototypes that are shared.

ReBaFL, Algorithm 1 (no public identifier at hand; section numbers are the paper's). Two parts are
added to FedAvg, each with its own switch:

* R-BSM (relaxed balanced softmax): cross-entropy on z + log pi, where
      pi_c = (1 - epsilon) n_{k,c} / n_k + epsilon / C.
  epsilon = 1 is the plain softmax, epsilon = 0 is balanced softmax with missing classes masked.
* F-Aug: features of the batch are moved to other classes' prototypes,
      h~_j = Q[t] + lambda (h_j - Q[y_j]),   t = j mod C,
  and the head alone also learns from them with weight mu. mu = 0 switches it off.

After training each client sends its class-mean features (prototypes) and how many samples stand
behind each. The server averages prototypes by those counts.

Where the text and the authors' public code differ, the text is the default:
prototypes are means of the head's input; owned classes use local prototypes (`proto_source`);
classes nobody reported lose theirs (`proto_memory`). Plain label smoothing, the paper's own
negative control, is `label_smoothing`.
"""

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.aggregation.aggregator import Aggregation
from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, RoundMethod
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, BelowOne, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message, Payload


class ReBaFL(RoundMethod):
    card = Card(
        title="ReBaFL",
        needs="classes",
        source="ReBaFL, Alg. 1",
        text="FedAvg with a softmax corrected for each client's class imbalance, and with class "
        "prototypes (mean features) that clients share to train the last layer on classes they lack.",
        downlink=(Kind.GLOBAL_MODEL, Kind.GLOBAL_PROTOTYPES),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS),
    )

    @settings
    class Config(LocalConfig):
        momentum: BelowOne = Field(
            default=0.5, description="rho: momentum of local SGD; from the authors' code, the paper does not say"
        )
        weight_decay: Amount = Field(default=5e-4, description="L2 penalty of local training")
        epsilon: Share = Field(
            default=0.01,
            description="share of the uniform prior in the re-balanced softmax; 1 switches re-balancing "
            "(R-BSM) off",
        )
        mu: Amount = Field(
            default=0.1,
            description="weight of the augmented loss; 0 switches the feature augmentation (F-Aug) off",
        )
        strength: float = Field(
            default=1.0,
            allow_inf_nan=False,
            description="lambda: how much of the residual h - Q[y] is carried over",
        )
        proto_source: Literal["local_override", "global_only"] = Field(
            default="local_override",
            description="whose prototypes owned classes use: the client's own, or the federation's",
        )
        proto_memory: bool = Field(
            default=False, description="whether the last prototype of a class that nobody reported is kept"
        )
        cycle: Literal["all", "available"] = Field(
            default="all", description="which classes the targets run over: all, or those that have a prototype"
        )
        cycle_offset: bool = Field(
            default=True,
            description="whether each client and round starts at another class where a batch is smaller "
            "than the number of classes",
        )
        aug_min_classes: AtLeastZero = Field(default=2, description="clients with fewer classes do no F-Aug")
        proto_min_classes: AtLeastZero = Field(default=1, description="with fewer classes no prototypes are sent")
        label_smoothing: Share = Field(
            default=0.0,
            description="share of plain label smoothing, the paper's negative control; 0 switches it off",
        )

        def __post_init__(self) -> None:
            if self.label_smoothing and not self.epsilon:
                raise UserError(
                    "rebafl.label_smoothing with epsilon: 0 asks for masked classes",
                    hint="use epsilon > 0, or epsilon: 1 for plain label smoothing",
                )

    # Client ------------------------------------------------------------------------------

    def compute_constants(self, client: Client) -> Constants:
        const = {"shift": prior_shift(client.counts, self.config.epsilon)}
        if self.config.mu > 0:
            const |= self._merge_prototypes(client)
        return const

    def _merge_prototypes(self, client: Client) -> dict[str, Tensor]:
        """Q and which classes it holds: the received prototypes, overwritten by local ones (4.4 #1)."""
        received = client.message.get(Kind.GLOBAL_PROTOTYPES, {})
        owned = client.counts > 0
        table = torch.zeros(client.classes, _read_feature_dim(client), device=client.y.device)
        have = torch.zeros_like(owned)
        if received and int(owned.sum()) >= self.config.aug_min_classes:  # none in round 0 (#3)
            table[received["classes"]] = received["features"]
            have[received["classes"]] = True
            if self.config.proto_source == "local_override":
                table[owned] = client_prototypes(client, client.start)["features"].to(table)
                have = have | owned
        # Batches smaller than C would only ever visit the low labels: each client starts elsewhere,
        # and goes on in every round
        small = self.config.cycle_offset and self.config.batch_size < client.classes
        offset = client.index + client.round * self.config.batch_size if small else 0
        return {"table": table, "have": have, "offset": torch.tensor(offset).to(table.device)}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        h = net.features(x)
        loss = self._compute_balanced_loss(net.head(h), y, const["shift"])
        if self.config.mu > 0:
            loss = loss + self.config.mu * self._compute_augmented_loss(net, h.detach(), y, const)
        return loss

    def _compute_balanced_loss(self, logits: Tensor, y: Tensor, shift: Tensor) -> Tensor:
        return cross_entropy(logits + shift, y, label_smoothing=self.config.label_smoothing)

    def _compute_augmented_loss(self, net: Handle, h: Tensor, y: Tensor, const: Constants) -> Tensor:
        moved, target = augment(
            h, y, const["table"], const["have"], const["offset"], self.config.strength, self.config.cycle
        )
        counts = (target[:, None] == torch.arange(self.classes, device=y.device)).sum(0)
        loss = self._compute_balanced_loss(net.head(moved), target, prior_shift(counts, self.config.epsilon))
        # With no prototypes at all nothing was moved, and there is nothing to learn from
        return torch.where(const["have"].any(), loss, torch.zeros_like(loss))

    def finish(self, client: Client, trained: Trained) -> Reply:
        n, message = len(client.y), {Kind.LOCAL_MODEL: trained.state}
        message[Kind.NUM_EXAMPLES] = count_of(n)
        counts = client.counts.cpu()
        owned = counts.nonzero().flatten()
        if len(owned) >= self.config.proto_min_classes:
            message[Kind.LOCAL_PROTOTYPES] = client_prototypes(client, trained.state)
            message[Kind.PROTO_COUNTS] = {"classes": owned, "counts": counts[owned]}
        stats = {"train_loss": trained.loss, "steps": float(trained.steps)}
        return Reply(message=message, examples=n, stats=stats)

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        return {"model": federation.initial, "prototypes": {}}

    def broadcast(self, state: Tree) -> Message:
        message: Message = {Kind.GLOBAL_MODEL: state["model"]}
        if state["prototypes"]:
            message[Kind.GLOBAL_PROTOTYPES] = state["prototypes"]
        return message

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, pooled = deliveries.average(), PooledPrototypes(deliveries.prototype)
        for delivery in deliveries:
            weight = delivery.weight(self.config.weighting)
            mean.add(delivery.client, delivery.message[Kind.LOCAL_MODEL], weight, state["model"])
            if Kind.LOCAL_PROTOTYPES in delivery.message:
                counts = delivery.message[Kind.PROTO_COUNTS]["counts"]
                pooled.add(delivery.client, delivery.message[Kind.LOCAL_PROTOTYPES], counts)
        before = state["prototypes"] if self.config.proto_memory else {}
        return {"model": mean.value(), "prototypes": pooled.value(before)}


def prior_shift(counts: Tensor, epsilon: float) -> Tensor:
    """What is added to the logits: log pi [C] less its largest, pi being counts mixed with uniform.

    Less its largest, a uniform prior adds exact zeros (4.4 #9).
    """
    prior = (1 - epsilon) * counts.double() / counts.sum() + epsilon / len(counts)
    return (prior.log() - prior.max().log()).float()


def augment(
    h: Tensor, y: Tensor, table: Tensor, have: Tensor, offset: Tensor, strength: float, cycle: str
) -> tuple[Tensor, Tensor]:
    """Features moved to other classes and their labels (4.1); rows without prototypes stay.

    h [b, D], y [b], table [C, D], have [C] -> h~ [b, D], y~ [b].
    """
    position = torch.arange(len(y), device=y.device) + offset
    if cycle == "available":
        rank = have.long().cumsum(0)  # 1..|Q| at the classes in Q
        wanted = position % have.sum().clamp(min=1) + 1
        target = (have & (rank == wanted[:, None])).long().argmax(1)
    else:
        target = position % len(have)
    usable = have[y] & have[target]
    moved = table[target] + strength * (h - table[y])
    return torch.where(usable[:, None], moved, h), torch.where(usable, target, y)


def client_prototypes(client: Client, state: dict[str, Tensor]) -> Payload:
    """Mean of the head's input over each owned class, in evaluation mode, un-augmented images."""
    features, y = client.run("features", state).cpu().double(), client.y.cpu()
    classes = client.counts.cpu().nonzero().flatten()
    return {"classes": classes, "features": torch.stack([features[y == c].mean(0) for c in classes]).float()}


def _read_feature_dim(client: Client) -> int:
    return next(p.shape[1] for p in client.net.head.parameters() if p.dim() == 2)


class PooledPrototypes:
    """P_c = sum of n_{k,c} p_{k,c} / sum of n_{k,c} over the clients that reported class c.

    So by the rule `mean`; `begin` gives the aggregation of a class by the federation's rule for prototypes.
    """

    def __init__(self, begin: Callable[[int], Aggregation]) -> None:
        self._begin = begin
        self._pooled: dict[int, Aggregation] = {}

    def add(self, client: int, prototypes: Payload, counts: Tensor) -> None:
        for c, row, n in zip(
            prototypes["classes"].tolist(), prototypes["features"], counts.tolist(), strict=True
        ):
            if c not in self._pooled:
                self._pooled[c] = self._begin(c)
            self._pooled[c].add(client, {"features": row}, n, {})

    def value(self, before: Payload) -> Payload:
        """The pooled prototypes; classes nobody reported keep their row of `before`, if any."""
        rows = dict(zip(before["classes"].tolist(), before["features"], strict=True)) if before else {}
        rows |= {c: pooled.value()["features"] for c, pooled in self._pooled.items() if pooled.total}
        if not rows:
            return {}
        classes = sorted(rows)
        return {"classes": torch.tensor(classes), "features": torch.stack([rows[c] for c in classes])}
