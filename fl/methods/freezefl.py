"""FreezeFL: slow clients freeze their first layers for most of a round, and those that help more are chosen more.

Chou et al., FreezeFL, Algorithm 1, eq. 2 to 8. Client k trains the first epoch on all layers; with P_l the mean
absolute change of a weight of layer l and tau_n the time that its exchange takes with n layers frozen, it takes

    n* = argmax_n [sum_{l > n} P_l] (T / tau_n)^(beta 1[T < tau_n])

gives layers 1..n* their received values back, trains the others to the end and sends only those. The server
averages each layer over those who sent it and sets, with U_k from how a client's layers moved together with the
shared model's,

    T <- (1 - a) T + a mean of the times t_k,    u_k <- (1 - b) u_k + b U_k

and draws K clients one after the other in proportion to u; every `restart_every` rounds all u move towards their
mean. `beta: 0, selection: false` is FedAvg, bit for bit. The decision is taken in logarithms, where the printed
power underflows. The paper leaves a and b open (these are the public code's). That code differs from the paper:
importance is the root of the mean change, and after the first epoch it restores all layers and trains E more
(`public_code`); its server multiplies the whole average by L - n in every round and uses weights where eq. 6 has
their changes, which is left out. A client expects to send plain numbers, also where a protection on the wire
makes them fewer bytes. No utility falls below `utility_floor`, so that everybody may be drawn.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.clients.selection import Choice, Selection
from fedaudit.fl.clients.time_model import Workload
from fedaudit.fl.families.freezing import (
    decide,
    draw_without_replacement,
    importances,
    restart_utilities,
    utility,
)
from fedaudit.fl.families.layers import Layers, layers
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording.coded import size_of
from fedaudit.fl.recording.sizes import message_bytes
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Positive, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Params, PartTraining
from fedaudit.fl.wire.protection import Message


class ByUtility(Selection):
    """Clients are drawn in proportion to how much they helped, by the state and the settings of FreezeFL."""

    title = "FreezeFL's selection"

    def describe(self) -> str:
        return "the server draws the clients that it asks in proportion to how much they helped before"

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        rng = choice.federation.streams.numpy("selection", choice.round)
        count = choice.method.config.clients_per_round
        return draw_without_replacement(choice.state["utilities"].numpy(), count, rng)


class FreezeFL(RoundMethod):
    card = Card(
        selection=ByUtility,
        title="FreezeFL",
        source="FreezeFL, Alg. 1",
        text="FedAvg in which slow clients stop training the first layers after one pass, to answer in time, "
        "and the server prefers clients whose layers moved as the shared model did.",
        downlink=(Kind.GLOBAL_MODEL, Kind.SOFT_DEADLINE),
        uplink=(Kind.UNFROZEN_LAYERS, Kind.FROZEN_COUNT, Kind.NUM_EXAMPLES),
        timed=True,
    )

    @settings
    class Config(LocalConfig):
        local_epochs: AtLeastZero = Field(
            default=3, description="E: passes of a client, the first over all layers"
        )
        beta: Amount = Field(
            default=4.0, description="how much being late counts against layers that move; 0 never freezes"
        )
        clients_per_round: AtLeastOne = Field(
            default=108, description="K: clients drawn a round, with `selection`"
        )
        deadline: Positive = Field(default=1.0, description="T_0: time by which clients should answer, at first")
        deadline_weight: Share = Field(default=0.4, description="a: weight of a round in the deadline")
        utility_weight: Share = Field(default=0.9, description="b: weight of a round in a client's utility")
        utility_start: Positive = Field(default=10.0, description="u_0: everybody's utility at first")
        utility_floor: Positive = Field(default=1e-5, description="the least utility")
        restart_every: AtLeastZero = Field(
            default=60, description="Phi: rounds between two warm restarts of the utilities; 0 is never"
        )
        freezing: bool = Field(default=True, description="whether clients freeze layers")
        selection: bool = Field(
            default=True, description="whether clients are drawn by utility, or left to availability as in FedAvg"
        )
        layerwise: bool = Field(
            default=True,
            description="whether a layer is averaged over those who trained it, or models as a whole",
        )
        importance: Literal["l1_mean", "public_code"] = Field(
            default="l1_mean", description="of a layer: its mean change, or the root of it"
        )
        probe: Literal["continue", "public_code"] = Field(
            default="continue", description="go on after the first epoch, or restore all layers and train E more"
        )
        charge: Literal["epochs", "probe", "really"] = Field(
            default="probe",
            description="what takes time: E epochs with frozen layers (public code), the first with all of "
            "them (Algorithm 1), or one more (what the public code runs)",
        )

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        if not self.config.selection:
            self.selection = Selection()

    # Client ---------------------------------------------------------------------------------

    def prepare(self, net: Net, classes: int) -> Net:
        self.blocks: Layers = layers(net)
        return super().prepare(net, classes)

    def train(self, client: Client) -> Reply:
        const, frozen = self.compute_constants(client), list[int]()

        def freeze_after(epoch: int, net: Net) -> Sequence[str]:
            if epoch > 1:
                return ()
            frozen.append(self.decide_frozen_layers(client, {k: p.detach() for k, p in net.named_parameters()}))
            return self.first_layers(frozen[0])

        if self.config.probe == "continue" or not self.config.local_epochs:
            trained = client.train(self, const, after_epoch=freeze_after)
        else:
            probe = PartTraining(self, replace(self.config, local_epochs=1))
            client.train(probe, const, after_epoch=freeze_after)
            fixed = frozenset(self.first_layers(frozen[0]))
            rest = PartTraining(self, self.config, lambda name: name not in fixed)
            trained = client.train(rest, const, stream="batches_after_probe", after_epoch=None)
        n = frozen[0] if frozen else 0
        left = set(self.first_layers(n)) if self.config.layerwise else set()
        message: Message = {
            Kind.UNFROZEN_LAYERS: {k: v for k, v in trained.state.items() if k not in left},
            Kind.FROZEN_COUNT: {"count": torch.tensor(n)},
        }
        if self.config.weighting == "samples":
            message[Kind.NUM_EXAMPLES] = count_of(len(client.y))
        stats = {"train_loss": trained.loss, "steps": float(trained.steps), "frozen_layers": float(n)}
        return Reply(message=message, examples=len(client.y), stats=stats)

    def first_layers(self, count: int) -> list[str]:
        """Names of the first layers."""
        return [name for names in self.blocks[:count] for name in names]

    def decide_frozen_layers(self, client: Client, weights: Params) -> int:
        """n* of a client after its first epoch; 0 where it has no clock."""
        if not self.config.freezing or client.clock is None or client.workload is None:
            return 0
        worth = importances(client.start, weights, self.blocks, self.parameters)
        if self.config.importance == "public_code":
            worth = [sqrt(p) for p in worth]
        down, times = message_bytes(client.message), list[float]()
        said = 8 * (2 if self.config.weighting == "samples" else 1)  # how many layers, and how many examples
        for n in range(len(self.blocks)):
            sent = self.blocks[n:] if self.config.layerwise else self.blocks
            up = size_of({k: client.start[k] for names in sent for k in names}) + said
            times.append(client.clock(down, up, self.charge_work(n, client.workload)))
        deadline = float(client.message[Kind.SOFT_DEADLINE]["deadline"])
        return decide(worth, times, deadline, self.config.beta)

    def charge_work(self, frozen: int, workload: Workload) -> float:
        """Seconds of the profile an example, over all epochs."""
        epochs: int = self.config.local_epochs
        if not epochs:
            return 0.0
        all_layers, few = workload.profile[0], workload.frozen(frozen)
        if self.config.charge == "epochs":
            return epochs * few
        return all_layers + (epochs if self.config.charge == "really" else max(0, epochs - 1)) * few

    def estimate_cost(self, client: int, sent: Message, examples: int, workload: Workload) -> float:
        return self.charge_work(int(sent[Kind.FROZEN_COUNT]["count"]), workload)

    # Server ---------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        super().open(federation)
        [self.blocks] = federation.workers.map("inspect", [layers])

    def start(self, federation: Federation) -> Tree:
        clients = len(federation.parts)
        return {
            "model": federation.initial,
            "deadline": self.config.deadline,
            "utilities": torch.full((clients,), self.config.utility_start, dtype=torch.float64),
            "participations": torch.zeros(clients, dtype=torch.int64),
        }

    def broadcast(self, state: Tree) -> Message:
        deadline = torch.tensor(state["deadline"], dtype=torch.float64)
        return {Kind.GLOBAL_MODEL: state["model"], Kind.SOFT_DEADLINE: {"deadline": deadline}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        before: State = state["model"]
        means = [deliveries.average(f"layer{i}") for i in range(len(self.blocks))]
        times, heard = list[float](), dict[int, tuple[int, dict[int, Tensor]]]()
        for d in deliveries:
            sent, weight = d.message[Kind.UNFROZEN_LAYERS], d.weight(self.config.weighting)
            own = {i: {k: sent[k] for k in names} for i, names in enumerate(self.blocks) if names[0] in sent}
            for i, layer in own.items():
                means[i].add(d.client, layer, weight, {k: before[k] for k in layer})
            times.append(d.time)
            if self.config.selection:
                n = min(max(0, int(d.message[Kind.FROZEN_COUNT]["count"])), len(self.blocks))  # as clients say
                heard[d.client] = (n, {i: self._measure(layer, before) for i, layer in own.items() if i >= n})
        model = dict(before)
        for mean in means:
            if mean.total:
                model |= mean.value()
        a = self.config.deadline_weight
        deadline = (1 - a) * state["deadline"] + a * float(np.mean(times))
        after = {"model": model, "deadline": deadline}
        return state | after | (self._update_reputations(state, heard, model, round) if heard else {})

    def _measure(self, layer: State, before: State) -> Tensor:
        """The change of a layer's parameters, flat."""
        return torch.cat([(v.cpu() - before[k]).flatten() for k, v in layer.items() if k in self.parameters])

    def _update_reputations(
        self, state: Tree, heard: dict[int, tuple[int, dict[int, Tensor]]], model: State, round: int
    ) -> Tree:
        """Utilities and counts after a round."""
        c, before = self.config, state["model"]
        utilities, counts = state["utilities"].clone(), state["participations"].clone()
        together = [self._measure({k: model[k] for k in names}, before) for names in self.blocks]
        for k, (n, moved) in heard.items():
            gain = utility(len(self.blocks) - n, list(moved.values()), [together[i] for i in moved])
            utilities[k] = max(
                c.utility_floor, float((1 - c.utility_weight) * utilities[k]) + c.utility_weight * gain
            )
            counts[k] += 1
        if c.restart_every and (round + 1) % c.restart_every == 0:  # the paper counts rounds from 1
            utilities = torch.from_numpy(restart_utilities(utilities.numpy(), counts.numpy(), c.restart_every))
            counts = torch.zeros_like(counts)
        return {"utilities": utilities, "participations": counts}
