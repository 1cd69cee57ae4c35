"""Seol & Kim: classes are evened out within clients, over the clients of a round, and in the steps taken.

Seol and Kim, on class imbalance in federated learning, Algorithms 1 to 3 (no public identifier at hand).
Three parts, each with its own switch; with all of them off this is FedAvg, bit for bit.

* data_sampling: a client duplicates examples of its small classes up to the mean of its counts, less
  with every round: target = mean * exp(-delta r). The server raises delta while clients add more than
  `theta_over` of their data.
* client_selection: all candidates report their class counts. The server starts with the largest and goes
  on adding clients that own the class of which there is least, taking of each only what keeps classes
  below the first client's largest, until the Kullback-Leibler divergence from uniform is below `theta_kld`.
* dynamic_batch: a batch is a client's allocation / beta, and the rate is
      eta_max * (2 / pi) * arctan(batch).

Where the text is ambiguous: the allocation is computed once and used as given (`allocation: printed` counts
first and then gives the rest, mostly nothing); a client is never chosen twice, and selection stops where
nobody has what is missing; the search starts again at the top for every client. The printed rate,
eta_max * arctan(batch), exceeds eta_max (`lr_rule: printed`). Weights are the examples really used; the
printed ones divide by all data of the selected, which shrinks the model (`weights: printed`). The text
lets the amount decay instead of the target (`decay: amount`). With counts that never change the same
clients win every round; `pool_fraction` below 1 draws the candidates anew. The model is sent only to
those selected; have availability ask everybody.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.families.balanced_selection import Counts, allocate, oversample_counts
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, RoundMethod
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.batches import has_batch_statistics
from fedaudit.fl.wire.protection import Message


class ByClasses(Selection):
    """Clients whose examples are together as many of each class; its settings are those of SeolKim."""

    title = "Seol & Kim's selection"
    is_blind = True  # a random pool, whoever they are

    def describe(self) -> str:
        return "of those that answer, the server takes clients that together hold all classes equally"

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        config, everyone = choice.method.config, super().choose_candidates(choice)
        if not config.client_selection or config.pool_fraction == 1:
            return everyone
        rng = choice.federation.streams.numpy("seol_kim_pool", choice.round)
        size = max(1, int(config.pool_fraction * len(everyone)))
        return sorted(rng.choice(len(everyone), size, replace=False).tolist())

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        """`learnt` holds what each client is given, all that is trained on, and the share of duplicates in it."""
        config = choice.method.config
        if not choice.method.asks:
            return Chosen(answering, {"given": {}, "all": 0, "rate": 0.0})
        heard = choice.ask("report_volume", answering)
        volumes: dict[int, Counts] = {
            k: m[Kind.CLASS_VOLUME]["counts"].numpy().astype(np.int64) for k, m in heard.items()
        }
        sizes = {k: int(m[Kind.NUM_EXAMPLES]["count"]) for k, m in heard.items()}
        chosen, given = tuple(volumes), {}
        if config.client_selection:
            rng = choice.federation.streams.numpy("seol_kim", choice.round)
            printed = config.allocation == "printed"
            given = allocate(volumes, config.chosen, config.theta_kld, rng, printed=printed)
            chosen = tuple(given)
        everything, owned = sum(int(volumes[k].sum()) for k in chosen), sum(sizes[k] for k in chosen)
        given = {k: s for k, s in given.items() if s.sum() > 0}
        learnt = {"given": given, "all": everything, "rate": (everything - owned) / max(1, owned)}
        return Chosen(sorted(given if config.client_selection else chosen), learnt)


class SeolKim(RoundMethod):
    card = Card(
        selection=ByClasses,
        title="Seol & Kim",
        needs="classes",
        source="Seol and Kim, Alg. 1 to 3",
        text="FedAvg whose clients report how many examples of each class they hold, so that the server "
        "can choose clients, and parts of their data, that together hold all classes equally.",
        downlink=(Kind.GLOBAL_MODEL, Kind.OVERSAMPLE_DECAY, Kind.ALLOCATION),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.CLASS_VOLUME),
        counts_made=True,
    )

    @settings
    class Config(LocalConfig):
        batch_size: AtLeastOne = Field(
            default=64, description="B: examples in a batch; of the paper's baselines, used without dynamic_batch"
        )
        lr: Amount = Field(
            default=0.1,
            description="eta: step size of local training; of the paper's baselines, used without dynamic_batch",
        )
        data_sampling: bool = Field(
            default=True, description="whether clients duplicate examples of their small classes"
        )
        client_selection: bool = Field(
            default=True, description="whether the server selects clients whose classes together are even"
        )
        dynamic_batch: bool = Field(
            default=True, description="whether batch and step size follow from the client's allocation"
        )
        decay: Literal["target", "amount"] = Field(
            default="target",
            description="what shrinks over the rounds: the size classes are brought to, or the number added "
            "as printed",
        )
        decay_start: Amount = Field(
            default=0.01, description="delta in round 0: rate at which oversampling decays"
        )
        decay_step: Amount = Field(
            default=0.1, description="how much the server raises delta while clients add too much"
        )
        theta_over: Amount = Field(
            default=0.1, description="share of their data that clients may add before delta is raised"
        )
        chosen: AtLeastOne = Field(default=10, description="h: most clients that train in a round")
        theta_kld: Amount = Field(
            default=0.1, description="Kullback-Leibler divergence from uniform at which selection ends"
        )
        allocation: Literal["corrected", "printed"] = Field(
            default="corrected",
            description="whether the allocation is used as given, or counted first as printed",
        )
        pool_fraction: PositiveShare = Field(
            default=1.0, description="share of the clients that are candidates in a round; 0.5 lets others win"
        )
        updates: AtLeastOne = Field(
            default=25, description="beta: steps of a client in a local epoch; 3 where clients have one class"
        )
        eta_max: Amount = Field(default=0.1, description="largest step size, with dynamic_batch")
        lr_rule: Literal["bounded", "printed"] = Field(
            default="bounded", description="the step size never exceeds eta_max, or follows the printed formula"
        )
        weights: Literal["used", "printed"] = Field(
            default="used",
            description="averages are weighted by the examples used, or by the printed weights, which "
            "shrink the model",
        )

    @property
    def asks(self) -> bool:
        """Whether the server needs counts before training."""
        return bool(self.config.client_selection or self.config.data_sampling)

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        decay = torch.tensor(self.config.decay_start, dtype=torch.float64)
        return super().start(federation) | {"decay": decay}

    def broadcast(self, state: Tree) -> Message:
        message: Message = {}
        if not self.config.client_selection:
            message[Kind.GLOBAL_MODEL] = state["model"]
        if self.asks:
            message[Kind.OVERSAMPLE_DECAY] = {"decay": state["decay"]}
        return message

    def send_to(self, state: Tree, client: int) -> Message:
        if client not in state["given"]:
            return {}
        share = torch.from_numpy(state["given"][client])
        return {Kind.GLOBAL_MODEL: state["model"], Kind.ALLOCATION: {"counts": share}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        used = 0

        def count(delivery: Delivery) -> None:
            nonlocal used
            used += delivery.examples

        averaged = super().combine(state, deliveries.noting(count), round)
        if self.config.weights == "printed" and state["all"]:
            model = {
                k: v * (used / state["all"]) if v.is_floating_point() else v for k, v in averaged["model"].items()
            }
            averaged = averaged | {"model": model}
        step = self.config.decay_step if state["rate"] > self.config.theta_over else 0.0
        return averaged | {"decay": state["decay"] + step}

    # Client ------------------------------------------------------------------------------

    def report_volume(self, client: Client) -> Reply:
        """The class counts it could train on, and how many examples it really has."""
        volume = torch.from_numpy(self._count(client))
        n = len(client.y)
        message: Message = {Kind.CLASS_VOLUME: {"counts": volume}, Kind.NUM_EXAMPLES: count_of(n)}
        return Reply(message=message, examples=n)

    def train(self, client: Client) -> Reply:
        client = self._draw_examples(client)
        method = self
        if self.config.dynamic_batch:
            least = 2 if has_batch_statistics(client.net) else 1
            batch = max(least, len(client.y) // self.config.updates)
            rate = learning_rate(batch, self.config.eta_max, self.config.lr_rule)
            method = copy.copy(self)
            method.config = replace(self.config, batch_size=batch, lr=rate)
        return self.finish(client, client.train(method, self.compute_constants(client)))

    def _count(self, client: Client) -> Counts:
        counts: Counts = client.counts.cpu().numpy().astype(np.int64)
        if not self.config.data_sampling:
            return counts
        decay = float(client.message[Kind.OVERSAMPLE_DECAY]["decay"])
        return oversample_counts(counts, decay, client.round, self.config.decay)

    def _draw_examples(self, client: Client) -> Client:
        """The client with the examples of this round: duplicates added, its allocation drawn."""
        if not self.asks:
            return client
        volume, rng = (self._count(client), client.streams.numpy("seol_kim_sampling", client.round, client.index))
        given = client.message.get(Kind.ALLOCATION)
        share: Any = volume if given is None else given["counts"].cpu().numpy()
        y = client.y.cpu().numpy()
        rows = draw(y, volume, share, rng)
        taken: Tensor = torch.from_numpy(rows).to(client.y.device)
        return client.take(taken)


def draw(labels: NDArray[np.int64], volume: Counts, share: Counts, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows for a round: of each class, `share` of the pool in which duplicates raise it to `volume`.

    A class that is taken whole and has no duplicates keeps its order and draws nothing.
    """
    rows: list[NDArray[np.int64]] = []
    for label in np.flatnonzero(share):
        own = np.flatnonzero(labels == label)
        pool = np.r_[own, rng.choice(own, max(0, int(volume[label]) - len(own)))]
        if share[label] < len(pool):
            pool = rng.choice(pool, int(share[label]), replace=False)
        rows.append(pool)
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, np.int64)


def learning_rate(batch: int, eta_max: float, rule: Literal["bounded", "printed"]) -> float:
    """eta_max * arctan(b), bounded by the factor 2 / pi; almost constant for b > 10 in both forms."""
    return float(eta_max * np.arctan(batch) * (2 / np.pi if rule == "bounded" else 1.0))
