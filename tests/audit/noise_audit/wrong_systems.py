"""Systems that lose more privacy than their ledger says, each in a part that is no protection or in one that is.

Every class is right but for one thing, which its docstring names.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Context
from fedaudit.fl.aggregators.mean import Mean
from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.model import State
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.noising import base_of, change, norm, rebuild
from fedaudit.fl.wire.protection import Averaging, Payload, Protection, Sending

# Rules and servers ------------------------------------------------------------------------------


class _Changed(Aggregation):
    """The plain mean of the uploads' changes, and what becomes of it."""

    def __init__(self, context: Context, rule: "ChangedMean") -> None:
        super().__init__(context)
        self._mean, self._rule, self._start = Mean().begin(context), rule, dict[str, Tensor]()

    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        self._mean.add(client, upload, weight, start)
        self._start, self.total = dict(start), self._mean.total

    def value(self) -> State:
        mean = self._mean.value()
        moved, self.state = self._rule.changed(
            {k: v - self._start[k] for k, v in mean.items()}, self.context.state
        )
        return {k: self._start[k] + v for k, v in moved.items()}


class ChangedMean(Aggregator):
    title, source = "A mean that does more", "a test of the audit"
    reads_single_uploads = False  # so it says
    of_one = True

    def begin(self, context: Context) -> Aggregation:
        return _Changed(context, self)

    def changed(self, mean: State, state: Tree) -> tuple[State, Tree]:
        return mean, state


class _Favouring(_Changed):
    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        factor = 3.0 if client == 2 else 1.0
        super().add(client, {k: start[k] + factor * (v - start[k]) for k, v in upload.items()}, weight, start)


class FavoursOneClient(ChangedMean):
    """Counts the upload of one client three times, neither the first nor the last."""

    def begin(self, context: Context) -> Aggregation:
        return _Favouring(context, self)


class TripledMean(ChangedMean):
    """Returns three times the mean."""

    def changed(self, mean: State, state: Tree) -> tuple[State, Tree]:
        return {k: 3 * v for k, v in mean.items()}, state


class MomentumOfCleanMeans(ChangedMean):
    """Adds .9 of what it returned the round before, which had no noise yet."""

    def changed(self, mean: State, state: Tree) -> tuple[State, Tree]:
        moved = {k: v + 0.9 * state[k] if k in state else v for k, v in mean.items()}
        return moved, dict(moved)


class CountsArrivals(CentralDP):
    """Divides by those who came, and says that it divides by those expected."""

    def average(self, averaging: Averaging) -> None:
        averaging.delivered = averaging.expected if averaging.delivered else 0  # type: ignore[assignment]
        super().average(averaging)


class FirstModelFromData(FedAvg):
    """The first model is moved by the mean of all clients' images."""

    def open(self, federation: Federation) -> None:
        super().open(federation)
        x = federation._holdings.data.train.x
        mean = sum(float(x[part].mean()) for part in federation._holdings.parts if len(part))
        first = federation.initial
        federation.begin_with({k: v + mean if v.is_floating_point() else v for k, v in first.items()})


class TrialOfFirstModels(FirstModelFromData):
    """The first model is moved by data in one arm of a trial, into which the master seed draws a run."""

    def open(self, federation: Federation) -> None:
        treated = federation.streams.numpy("arm").random() < 0.5
        (FirstModelFromData if treated else FedAvg).open(self, federation)


class SlowsOnALoss(FedAvg):
    """Halves the server's step while the training loss, which nobody released, does not fall."""

    losses: tuple[float, ...] = ()

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        type(self).losses = (*type(self).losses[-99:], trained.loss)
        return reply

    def start(self, federation: Federation) -> Tree:
        type(self).losses = ()
        return super().start(federation)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        new = super().combine(state, deliveries, round)
        seen = type(self).losses
        if round < 2 or sum(seen[-6:]) < 0.9 * sum(seen[:6]):
            return new
        halved = {k: (v + state["model"][k]) / 2 if v.is_floating_point() else v for k, v in new["model"].items()}
        return {**new, "model": halved}


# What clients send ------------------------------------------------------------------------------


class LossInHeartbeat(FedAvg):
    """Sends its training loss in a message of the control plane."""

    card = replace(FedAvg.card, uplink=(*FedAvg.card.uplink, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        return replace(reply, message={**reply.message, Kind.HEARTBEAT: {"alive": torch.tensor(trained.loss)}})


class ModelInRollbackRequest(FedAvg):
    """Sends its model once more, in clear, in a message of the control plane."""

    card = replace(FedAvg.card, uplink=(*FedAvg.card.uplink, Kind.ROLLBACK_REQUEST))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        return replace(reply, message={**reply.message, Kind.ROLLBACK_REQUEST: dict(trained.state)})


class ReBaFLWithoutCounts(ReBaFL):
    """Right: sends a model and prototypes, and not how many examples it holds."""

    card = replace(ReBaFL.card, uplink=tuple(k for k in ReBaFL.card.uplink if k != Kind.NUM_EXAMPLES))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        return replace(reply, message={k: v for k, v in reply.message.items() if k != Kind.NUM_EXAMPLES})


class PrototypesAboveALoss(ReBaFLWithoutCounts):
    """Leaves its prototypes out when its loss is low."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if trained.loss > 0.5:
            return reply
        left = {Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS}
        return replace(reply, message={k: v for k, v in reply.message.items() if k not in left})


class MaskChosenByData(FedAvg):
    """Sends the half of each array that training moved most, and says which."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, start = super().finish(client, trained), client.start
        masks, arrays = {}, {}
        for name, value in trained.state.items():
            moved = (value - start[name]).abs()
            masks[name] = moved > moved.median()
            arrays[name] = torch.where(masks[name], value, torch.zeros_like(value))
        size = sum(int(m.sum()) * 4 for m in masks.values())
        return replace(reply, message={**reply.message, Kind.LOCAL_MODEL: Coded(arrays, size, masks)})


# Protections ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Settings:
    clip_norm: float = 1.0
    noise_multiplier: float = 2.0


class OwnNoise(DPGaussian):
    """Right: clips a message and adds noise, all by itself."""

    Config: Any = _Settings
    kinds = (Kind.LOCAL_MODEL,)

    def describe(self) -> str:
        return "clipping and noise of a team's own"

    def noise_std(self, kind: Kind) -> float:
        return float(self.config.noise_multiplier * self.config.clip_norm)

    def apply(self, sending: Sending) -> None:
        kind = Kind.LOCAL_MODEL
        payload, base = sending.message[kind], base_of(kind, sending.reference)
        moved = self.noised(self.clipped(change(payload, base), sending), sending)
        sending.message[kind] = rebuild(payload, base, moved)
        sending.protected.add(kind)
        sending.releases += self.lines(sending)

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        factor = min(1.0, self.config.clip_norm / max(norm(arrays, 2), 1e-12))
        return {k: v * factor for k, v in arrays.items()}

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        std = self.noise_std(Kind.LOCAL_MODEL)
        return {k: v + torch.randn(v.shape, generator=sending.rng) * std for k, v in arrays.items()}

    def lines(self, sending: Sending) -> Sequence[Release]:
        return [
            Release(
                round=sending.round,
                kind=Kind.LOCAL_MODEL,
                sender=str(sending.sender),
                observers=sending.observers,
                mechanism="gaussian",
                noise_std=self.noise_std(Kind.LOCAL_MODEL),
                sensitivity=self.config.clip_norm,
                clip_norm=self.config.clip_norm,
                clip_of="update",
                clipped="on the client's whole change of the model",
                derived="clip",
                source=type(self).__name__,
            )
        ]


class HasItsNoiseDrawn(OwnNoise):
    """Right: clips a message by itself, and the run's own source draws the noise."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        [line] = self.lines(sending)
        return sending.noise.release(line, arrays)


class TakesHalfBack(HasItsNoiseDrawn):
    """Takes half of that noise away again."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: (v + arrays[k]) / 2 for k, v in super().noised(arrays, sending).items()}


class KeepsTheFirstNoise(HasItsNoiseDrawn):
    """Adds a client's noise of the first round in all later ones."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        noised, kept = super().noised(arrays, sending), self.__dict__.setdefault("kept", {})
        first = kept.setdefault(str(sending.sender), {k: v - arrays[k] for k, v in noised.items()})
        return {k: v + first[k] for k, v in arrays.items()}


class ClipsEachArray(OwnNoise):
    """Clips every array alone and declares the clip of one."""

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: v * min(1.0, self.config.clip_norm / max(float(v.norm()), 1e-12)) for k, v in arrays.items()}


class SoftClip(OwnNoise):
    """A clip that overshoots for messages a little above it."""

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        c, length = self.config.clip_norm, norm(arrays, 2)
        factor = 1.0 if length <= 2 * c else c / length
        return {k: v * factor for k, v in arrays.items()}


class ClipsAfterNoise(OwnNoise):
    """Adds noise first and clips to a norm of 30 then; the message itself has no bound."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        kind = Kind.LOCAL_MODEL
        payload, base = sending.message[kind], base_of(kind, sending.reference)
        moving = change(payload, base)
        factor = min(1.0, 30.0 / max(norm(moving, 2), 1e-12))
        sending.message[kind] = rebuild(payload, base, {k: v * factor for k, v in moving.items()})

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        return arrays


class WrapsAround(OwnNoise):
    """Sends its numbers modulo 12, unbounded before."""

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: torch.remainder(v, 12.0) for k, v in arrays.items()}


class LearnsItsClip(OwnNoise):
    """Clips to the largest norm that it has met."""

    largest = 1.0

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        self.largest = max(self.largest, norm(arrays, 2))
        factor = min(1.0, self.largest / max(norm(arrays, 2), 1e-12))
        return {k: v * factor for k, v in arrays.items()}


class MomentumInNoise(OwnNoise):
    """Adds half of the clean change of the round before to its noise."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.before: dict[str, Payload] = {}

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        noised, last = super().noised(arrays, sending), self.before.get(str(sending.sender), {})
        self.before[str(sending.sender)] = arrays
        return {k: v + 0.5 * last[k] if k in last else v for k, v in noised.items()}


class ListsEveryOther(OwnNoise):
    """Lists the releases of even rounds alone."""

    def lines(self, sending: Sending) -> Sequence[Release]:
        return super().lines(sending) if sending.round % 2 == 0 else []


class LargerOfTwo(FedAvg):
    """A client counts as many examples as it holds, or as the one that trained before: the larger number."""

    before = 0

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, own = super().finish(client, trained), len(client.y)
        reply.message[Kind.NUM_EXAMPLES] = count_of(max(own, self.before))
        self.before = own
        return reply


class TellsABit(FedAvg):
    """Sends whether most of a client's labels are large, which `AnswersAtRandom` makes uncertain."""

    card = replace(FedAvg.card, uplink=(Kind.LOCAL_MODEL, Kind.CLUSTER_ID))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[Kind.CLUSTER_ID] = {"cluster": torch.tensor(int(client.y.float().mean() > 4.5))}
        return reply


class AnswersAtRandom(Protection):
    """Randomised response: a bit is sent as it is with probability e / (1 + e). Nothing is wrong with it."""

    title, source, kinds = "Answers at random", "a test of the audit", (Kind.CLUSTER_ID,)
    share = math.e / (1 + math.e)  # of answers that are true

    def apply(self, sending: Sending) -> None:
        bit = sending.message[Kind.CLUSTER_ID]["cluster"]
        is_true = float(torch.rand((), generator=sending.rng)) < self.share
        sending.message[Kind.CLUSTER_ID] = {"cluster": bit if is_true else 1 - bit}
        sending.protected.add(Kind.CLUSTER_ID)
        line = Release(
            round=sending.round,
            kind=Kind.CLUSTER_ID,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="randomized_response",
            noise_std=1.0,
            sensitivity=1.0,
            source=type(self).__name__,
        )
        sending.releases.append(line)

    def describe(self) -> str:
        return "a bit is sent as it is with probability 0.73"


class AnswersInClear(AnswersAtRandom):
    """Wrong: no coin is tossed, and every bit is sent as it is."""

    title, share = "Answers in clear", 2.0
