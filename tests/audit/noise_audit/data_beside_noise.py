"""What depends on data beside the noise: systems that make a stated bound false, and some that only look so.

Written from the documentation and the contracts of plugins alone; data_beside_noise.yaml names each class with
the rest of its config, towards whom the bound is false, and which unit it speaks of. Every docstring says
what is wrong, or why nothing is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.data.partition import Index, OwnedLabels
from fedaudit.fl.datasets.digits import Digits
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, Owned, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedopt import FedOpt
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from fedaudit.fl.wire.protection import Message
from tests.audit.noise_audit.false_bounds_shared import (
    AlwaysTheFirst,
    EverybodyHasTen,
    Rounds,
    SaidToSum,
    Uploads,
    Watching,
    average_states,
    blend,
    compute_length,
    get_changes,
    move,
    see_all,
)

Labels = NDArray[np.int64]


# Methods whose server uses what was never released -----------------------------------------------------


class IgnoresTheWire(Rounds):
    """Wrong towards clients: the server passes each upload through the wire and then averages the reply that
    went in, so the next model is the mean of models without clip and noise."""

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        selected, answering = federation.participate(t, range(len(federation.parts)))
        tally = Tally(selected=len(selected))
        message = federation.wire.broadcast(t, self.broadcast(state), selected)
        federation.workers.everywhere("begin", t, message)
        mean = WeightedMean()
        jobs: list[tuple[int, Tree, Message]] = [(k, {}, {}) for k in answering]
        for k, reply in zip(answering, federation.workers.map("train", jobs), strict=True):
            received = federation.wire.uplink(t, reply.message, k, message)
            if received is None:
                continue
            tally.heard.add(k)
            tally.add(received, reply.examples, reply.stats)
            mean.add(reply.message[Kind.LOCAL_MODEL], 1.0)
        federation.tally = tally
        return state | {"model": mean.value()} if mean.total else state


class KeepsACopy(Rounds):
    """Wrong towards clients: what a client's code returns is kept at hand before it leaves the client; the server
    averages these copies, which have neither clip nor noise."""

    def start(self, federation: Federation) -> Tree:
        self.copies: list[State] = []
        return super().start(federation)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        self.copies.append(dict(reply.message[Kind.LOCAL_MODEL]))
        return reply

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, copies = deliveries.average_models(state["model"], self.config.weighting), self.copies
        self.copies = []
        return state | {"model": average_states(copies) if copies else mean}


class SizesUnsaid(Rounds):
    """Wrong towards the server: models are weighted by the clients' numbers of examples, which clients no longer
    send; the server takes them from the reply's bookkeeping and no line of the ledger has them."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        return Reply(message={Kind.LOCAL_MODEL: trained.state}, examples=len(client.y))


class LossAsSize(Rounds):
    """Wrong towards the server: clients report their loss in the place of their number of examples, and the
    server weights the noised models by it without a message that holds it."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        return Reply(message={Kind.LOCAL_MODEL: trained.state}, examples=1 + int(1000 * trained.loss))


class RateFromLoss(Watching):
    """Wrong towards the server: the server's step is one over one plus the last round's training loss, which
    clients measured on their data without noise and which stands in the metrics."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        loss = self.get_last("train_loss")
        return state | {"model": mean if loss is None else blend(state["model"], mean, 1 / (1 + loss))}


class RateFromSamples(Watching):
    """Wrong towards the server: the step grows with the number of examples that the last round used, an exact
    sum of the clients' sizes which nobody sent."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, used = (
            deliveries.average_models(state["model"], self.config.weighting),
            self.get_last("samples_used"),
        )
        return state | {"model": mean if used is None else blend(state["model"], mean, used / 144)}


class WhileUnfit(Selection):
    """Of StopsWhenFit."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        loss = choice.method.get_last("train_loss")
        return Chosen(()) if loss is not None and loss < 2.5 else Chosen(answering)


class StopsWhenFit(Watching):
    """Wrong towards the server and clients: nobody trains any more once the training loss of the last round is
    below a threshold, so the round in which traffic ends tells the clean losses."""

    card = replace(Watching.card, selection=WhileUnfit)


class KeepsTheFairest(Watching):
    """Wrong towards the server and the public: of all rounds the model is released whose clients' own models
    score best on their own mix of classes, a choice by clean models and exact label counts."""

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"best": federation.initial, "score": -1.0}

    def finish(self, client: Client, trained: Trained) -> Reply:
        return replace(super().finish(client, trained), memory={"own": trained.state})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, m["own"]) for k, m in sorted(memory.items()))

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        score, before = self.get_last("personal_accuracy"), state["model"]
        new = state | {"model": deliveries.average_models(before, self.config.weighting)}
        better = score is not None and score > state["score"]
        return new | {"best": before, "score": score} if better else new

    def get_model(self, state: Tree) -> State:
        best: State = state["best"]
        return best


class MixesOwnModels(Rounds):
    """Wrong towards clients: the hook that lists clients' own models for evaluation also hands them to the
    server, which mixes half of their clean mean into the model that it sends next."""

    def start(self, federation: Federation) -> Tree:
        self.own: dict[int, State] = {}
        return super().start(federation)

    def finish(self, client: Client, trained: Trained) -> Reply:
        return replace(super().finish(client, trained), memory={"own": trained.state})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        self.own = {k: m["own"] for k, m in sorted(memory.items())}
        return iter(list(self.own.items()))

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        return state | {"model": blend(mean, average_states(list(self.own.values())), 0.5) if self.own else mean}


class ReleasesOwnMean(MixesOwnModels):
    """Wrong towards the public: rounds are as they should be, and the model that is evaluated and released is the
    mean of the clients' own models, which no noise was added to."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": deliveries.average_models(state["model"], self.config.weighting)}

    def get_model(self, state: Tree) -> State:
        model: State = state["model"]
        return average_states(list(self.own.values())) if self.own else model


class SendsTheNeighbour(MixesOwnModels):
    """Wrong towards clients: each client is sent the own model of the next client in the ring to start from,
    as that client last trained it, without clip and noise."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": deliveries.average_models(state["model"], self.config.weighting)}

    def send_to(self, state: Tree, client: int) -> Message:
        others = [k for k in self.own if k > client] or [k for k in self.own if k != client]
        return {Kind.GLOBAL_MODEL: self.own[others[0]]} if others else {}


class HeadFromFrequencies(Rounds):
    """Wrong towards clients: the first model's bias is the logarithm of how often each class occurs in all
    clients' data, counted exactly and sent to everybody before any noise."""

    def open(self, federation: Federation) -> None:
        super().open(federation)
        held = federation._holdings
        counts = np.bincount(held.data.train.y[np.concatenate(held.parts)], minlength=len(held.data.classes))
        bias = torch.tensor(np.log((counts + 1) / (counts + 1).sum()), dtype=torch.float32)
        first = federation.initial
        federation.begin_with({k: bias.clone() if k.endswith("bias") else v for k, v in first.items()})


class StartsFromPilot(Rounds):
    """Wrong towards clients: the first model's weights are the mean images of the classes at the pilot site,
    client 0, sent in clear to everybody who takes part."""

    def open(self, federation: Federation) -> None:
        super().open(federation)
        data, own = federation._holdings.data, federation._holdings.parts[0]
        x, y = data.train.x[own].reshape(len(own), -1), data.train.y[own]
        means = [x[y == c].mean(0) if (y == c).any() else np.zeros(x.shape[1]) for c in range(len(data.classes))]
        weight = torch.tensor(np.stack(means), dtype=torch.float32)
        first = federation.initial
        federation.begin_with({k: weight.clone() if k.endswith("weight") else v for k, v in first.items()})


class ShowsClassOrder(Watching):
    """Wrong towards clients: the order to begin names the class that all clients together hold most examples
    of, in a control message of the server that no noise reaches."""

    card = replace(Rounds.card, downlink=(Kind.GLOBAL_MODEL, Kind.TRAIN_ORDER))

    def broadcast(self, state: Tree) -> Message:
        held = self.federation._holdings
        counts = np.bincount(held.data.train.y[np.concatenate(held.parts)])
        return super().broadcast(state) | {Kind.TRAIN_ORDER: {"visit": torch.tensor(np.argsort(-counts))}}


class DropsTheLate(Rounds):
    """Wrong towards clients: the next deadline is the exact time of the slowest client, which is proportional to
    its number of examples, and every client is told it."""

    card = replace(Rounds.card, timed=True, downlink=(Kind.GLOBAL_MODEL, Kind.SOFT_DEADLINE))

    def broadcast(self, state: Tree) -> Message:
        deadline = torch.tensor(state.get("deadline", 0.0), dtype=torch.float64)
        return super().broadcast(state) | {Kind.SOFT_DEADLINE: {"deadline": deadline}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        times: list[float] = []
        mean = deliveries.noting(lambda d: times.append(d.time)).average_models(
            state["model"], self.config.weighting
        )
        return state | {"model": mean, "deadline": max(times)}


# Methods that choose clients by their data ---------------------------------------------------------------


class LargestHalf(Selection):
    """Of AsksTheLargest."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        parts = see_all(choice)._holdings.parts
        ranked = sorted(answering, key=lambda k: (-len(parts[k]), k))
        return Chosen(sorted(ranked[: (len(ranked) + 1) // 2]))


class AsksTheLargest(Rounds):
    """Wrong towards the server: of those that answer, the half with the most examples trains; their sizes are
    read from the simulation and who is asked tells them."""

    card = replace(Rounds.card, selection=LargestHalf)


class WorstHalf(Selection):
    """Of AsksTheWorst."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map("work", [("measure", (k, empty, empty)) for k in answering])
        losses = {k: reply.stats["loss"] for k, reply in zip(answering, replies, strict=True)}
        ranked = sorted(losses, key=lambda k: (-losses[k], k))
        return Chosen(sorted(ranked[: (len(ranked) + 1) // 2]))


class AsksTheWorst(Rounds):
    """Wrong towards the server: clients are asked for their loss outside the wire, and the half with the largest
    trains, so a choice by exact losses is visible and no message of it is in the ledger."""

    card = replace(Rounds.card, selection=WorstHalf)

    def measure(self, client: Client) -> Reply:
        """Measure the loss of the received model on all own examples."""
        loss = float(cross_entropy(client.run("forward", client.start).double(), client.y))
        return Reply(message={}, examples=len(client.y), stats={"loss": loss})


class HoldersOfNine(Selection):
    """Of BlindByName."""

    is_blind = True

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        held = see_all(choice)._holdings
        return [k for k, part in enumerate(held.parts) if int((held.data.train.y[part] == 9).sum()) >= 3]


class BlindByName(Rounds):
    """Wrong towards the server: candidates are the clients with at least three examples of the digit 9, and the
    class says that no data decide them."""

    card = replace(Rounds.card, selection=HoldersOfNine)


class AsManyAsLoss(Selection):
    """Of AsksFewerWhenFit."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        loss = choice.method.get_last("train_loss")
        return Chosen(answering if loss is None else tuple(answering)[: max(1, ceil(loss))])


class AsksFewerWhenFit(Watching):
    """Wrong towards the server: as many clients train as the last training loss, rounded up, says; the loss was
    measured on clients' data without noise, and how many are asked is plain to see."""

    card = replace(Watching.card, selection=AsManyAsLoss)


# Methods whose clients tell more than the noised numbers -------------------------------------------------


class BeatsWithLoss(Rounds):
    """Wrong towards the server: each client's sign of life carries its exact training loss, in a kind that counts
    as control plane and so has no line in the ledger."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        beat = {"loss": torch.tensor(float(trained.loss), dtype=torch.float64)}
        return replace(reply, message=reply.message | {Kind.HEARTBEAT: beat})


class BeatsPerClass(Rounds):
    """Wrong towards the server: a sign of life holds one number for each class that the client has; the numbers
    are all one, and how many there are tells how many classes."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, held = super().finish(client, trained), int((client.counts > 0).sum())
        return replace(reply, message=reply.message | {Kind.HEARTBEAT: {"alive": torch.ones(held)}})


class CallsForHelp(Rounds):
    """Wrong towards the server: a client asks for the last intact model again if it fits less than a fifth of
    its examples after training; whether the request is there tells its data's fit."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.ROLLBACK_REQUEST))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        fit = (client.run("forward", trained.state).argmax(1) == client.y).double().mean()
        asked: Message = {Kind.ROLLBACK_REQUEST: {"again": torch.tensor(1)}} if fit < 0.2 else {}
        return replace(reply, message=reply.message | asked)


class WidthOfData(Rounds):
    """Wrong towards the server: the number of values that a client says it sends is the number of pixels that are
    ever bright in its own images, a whole number without noise."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.WIDTH))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, lit = super().finish(client, trained), (client.x.flatten(1).amax(0) > 1).sum()
        width = {"width": torch.tensor(1.0), "values": lit.cpu()}
        return replace(reply, message=reply.message | {Kind.WIDTH: width})


class OrdersByLength(Rounds):
    """Wrong towards the server: a client lists its arrays with the largest change first, and the wire keeps the
    order in which they were sent, so one exact comparison a round leaves the client."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, start = super().finish(client, trained), {k: v.cpu() for k, v in client.start.items()}
        moved = {k: float((v - start[k]).abs().mean()) for k, v in trained.state.items()}
        ordered = {k: trained.state[k] for k in sorted(moved, key=lambda k: -moved[k])}
        return replace(reply, message={Kind.LOCAL_MODEL: ordered})


class NamesItsClasses(Rounds):
    """Wrong towards the server: a client adds an array, which gets noise as all others do, and whose name lists
    the classes that it holds."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        name = "mask_" + "".join(map(str, client.counts.nonzero().flatten().tolist()))
        return replace(reply, message={Kind.LOCAL_MODEL: trained.state | {name: torch.zeros(1)}})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": self.average_known(deliveries, state["model"])}


class PadsToSize(Rounds):
    """Wrong towards the server: a client adds the errors of its examples, one number each; they are noised, and
    their length is its exact number of examples."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        padded = trained.state | {"errors": torch.zeros(len(client.y))}
        return replace(reply, message={Kind.LOCAL_MODEL: padded})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": self.average_known(deliveries, state["model"])}


class GoesDouble(Rounds):
    """Wrong towards the server: a client that moved far sends its model in double precision so as not to lose
    digits; the type of the noised numbers tells the length of the clean change."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, start = super().finish(client, trained), {k: v.cpu() for k, v in client.start.items()}
        if compute_length({k: v.cpu() for k, v in trained.state.items()}, start) > 5:
            reply = replace(reply, message={Kind.LOCAL_MODEL: {k: v.double() for k, v in trained.state.items()}})
        return reply

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        return state | {"model": {k: v.float() for k, v in mean.items()}}


class WithdrawsItself(Rounds):
    """Correct, although meant as wrong: a client whose model does badly on its own data sends a number that is
    not finite, so that it is rejected, and whose upload is missing would tell that its clean loss is large. The
    wire rejects no message that gets noise: such a number counts as no change."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        loss = float(cross_entropy(client.run("forward", trained.state), client.y))
        if loss < 10:
            return reply
        return replace(reply, message={Kind.LOCAL_MODEL: {k: v * torch.nan for k, v in trained.state.items()}})


class LeavesOutTheStill(Rounds):
    """Wrong towards the server: arrays that training moved by less than a twentieth are not sent, to save
    traffic; which of them arrive tells which clean changes were small."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, start = super().finish(client, trained), {k: v.cpu() for k, v in client.start.items()}
        moved = {k: v for k, v in trained.state.items() if float((v.cpu() - start[k]).norm()) > 0.05 * v.numel()}
        weight = {k: v for k, v in trained.state.items() if k.endswith("weight")}
        return replace(reply, message={Kind.LOCAL_MODEL: weight | moved})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": self.average_known(deliveries, state["model"])}


class SavesRows(Rounds):
    """Wrong towards the server: a client sends only the rows of its last layer for classes that it holds, as an
    array with as many rows; each number is noised, and the shape counts its classes."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        held = (client.counts > 2).cpu()
        rows = {f"{k}.rows": v[held] for k, v in trained.state.items()}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: trained.state | rows})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {"model": self.average_known(deliveries, state["model"])}


class LossOfEachClass(Rounds):
    """Wrong towards the server: the losses are clipped and noised with Laplace noise, and there is one for each
    class that the client holds, so the length of the array is exact."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_LOSS))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, found = super().finish(client, trained), client.run("forward", trained.state)
        losses = [
            cross_entropy(found[client.y == c], client.y[client.y == c]) for c in sorted(set(client.y.tolist()))
        ]
        return replace(reply, message=reply.message | {Kind.LOCAL_LOSS: {"loss": torch.stack(losses).cpu()}})


class WarnsOfGlare(Rounds):
    """Wrong towards the server: a client reports an overexposed image by a sign of life of its own, which happens
    to few clients and tells that one such record is there."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, brightest = super().finish(client, trained), float(client.x.flatten(1).mean(1).max())
        glare: Message = {Kind.HEARTBEAT: {"glare": torch.tensor(1)}} if brightest > 0.2 else {}
        return replace(reply, message=reply.message | glare)


class DebugsClientFour(Rounds):
    """Wrong towards the server: a line left from debugging lets client 4, and from the fourth round on, send its
    label counts in a sign of life."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if client.index != 4 or client.round < 3:
            return reply
        return replace(reply, message=reply.message | {Kind.HEARTBEAT: {"debug": client.counts.cpu()}})


class SettledImages(Selection):
    """Of SettlesItself."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map(
            "work", [("average_images", (k, empty, empty)) for k in answering]
        )
        for k, reply in zip(answering, replies, strict=True):
            choice.federation.wire.uplink(
                choice.round, reply.message, k, choice.message, settled=(Kind.LOCAL_PROTOTYPES,)
            )
        return Chosen(answering)


class SettlesItself(Rounds):
    """Wrong towards the server: clients send their mean images before the round and call them settled, which says
    that the method has noised and listed them; it has done neither, and no protection acts on the kind."""

    card = replace(Rounds.card, selection=SettledImages, uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_PROTOTYPES))

    def average_images(self, client: Client) -> Reply:
        """Compute the mean image of each class, in the prototypes' form."""
        x, one_hot = client.x.flatten(1), torch.nn.functional.one_hot(client.y, client.classes).to(client.x)
        means = (one_hot.T @ x / one_hot.sum(0).clamp(min=1)[:, None]).cpu()
        sent = {"classes": torch.arange(client.classes), "features": means}
        return Reply(message={Kind.LOCAL_PROTOTYPES: sent}, examples=len(client.y))


class BestOfTwo(Rounds):
    """Wrong towards the server: each client is trained twice by DP-SGD and the model with the smaller
    training loss, measured on its examples without noise, is sent; the ledger has one training, and the
    choice is in none."""

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        selected, answering = federation.participate(t, range(len(federation.parts)))
        tally, mean = Tally(selected=len(selected)), WeightedMean()
        message = federation.wire.broadcast(t, self.broadcast(state), selected)
        federation.workers.everywhere("begin", t, message)
        empty: Tree = {}
        first = list(federation.workers.map("train", [(k, empty, empty) for k in answering]))
        second = list(federation.workers.map("work", [("try_again", (k, empty, empty)) for k in answering]))
        for k, a, b in zip(answering, first, second, strict=True):
            reply = min(a, b, key=lambda r: r.stats["train_loss"])
            received = federation.wire.uplink(t, reply.message, k, message)
            if received is not None:
                tally.heard.add(k)
                tally.add(received, reply.examples, reply.stats)
                mean.add(received[Kind.LOCAL_MODEL], 1.0)
        federation.tally = tally
        return state | {"model": mean.value()} if mean.total else state

    def try_again(self, client: Client) -> Reply:
        """Train with other draws."""
        trained = client.train(self, {}, stream="again")
        return Reply(
            message={Kind.LOCAL_MODEL: trained.state},
            examples=len(client.y),
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )


# Clients that tell for each other --------------------------------------------------------------------------


class GoesOnFromNeighbour(Rounds):
    """Wrong towards all: a worker keeps the last clean model that it trained, and the next client's upload goes
    five times along that change too; each upload is clipped, and one client moves several of them."""

    last: State | None = None

    def finish(self, client: Client, trained: Trained) -> Reply:
        start, sent = {k: v.cpu() for k, v in client.start.items()}, trained.state
        if self.last is not None:
            sent = {k: v.cpu() + 5 * (self.last[k] - start[k]) for k, v in sent.items()}
        self.last = {k: v.detach().clone().cpu() for k, v in trained.state.items()}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: sent})


class SharesClassWeights(Rounds):
    """Wrong towards the server: the weights of classes in the loss are computed from the counts of the client
    that trains first and kept for all others, so one client's labels move every upload."""

    weights: Tensor | None = None

    def compute_constants(self, client: Client) -> Constants:
        if self.weights is None:
            self.weights = (1 + client.counts.float()).pow(-3)
        return {"weights": self.weights}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        weights: Tensor = const["weights"][y]
        return (cross_entropy(net(x), y, reduction="none") * weights).mean() * 10


class StandardisesByFirst(Rounds):
    """Wrong towards the server: each worker standardises pixels by the mean and deviation at the first client
    that it trains, so that client's data scale, and where a pixel hardly varies blow up, what all others
    train on."""

    moments: tuple[Tensor, Tensor] | None = None

    def receive(self, client: Client) -> Client:
        if self.moments is None:
            self.moments = client.x.mean(0), client.x.std(0) + 1e-3
        mean, deviation = self.moments
        return replace(client, x=(client.x - mean) / deviation)


# Sums of noise made together -------------------------------------------------------------------------------


class ReadsOneOfTheSum(Rounds):
    """Wrong towards clients: under secure aggregation every client makes a sixth of the noise, and the server
    takes the first single upload as the next model, which has that sixth alone."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        first = next(deliveries).message[Kind.LOCAL_MODEL]
        for _ in deliveries:
            pass
        return state | {"model": dict(first)}


class WeighsThePilot(Rounds):
    """Wrong towards clients: the pilot site's upload weighs a hundred times the others', so in the sum its own
    sixth of the noise is nearly all there is against it."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average()
        for d in deliveries:
            weight = 100.0 if d.client == 0 else 1.0
            mean.add(d.client, d.message[Kind.LOCAL_MODEL], weight, state["model"])
        return state | {"model": mean.value()}


class PolishesOnPool(Watching):
    """Wrong towards the public: after the last round the server trains the model once more on all clients'
    examples together, through the job that evaluates fine-tuning, and releases what comes of it."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        model = deliveries.average_models(state["model"], self.config.weighting)
        if round < self.config.rounds - 1:
            return state | {"model": model}
        everything = np.concatenate(self.federation._holdings.parts)
        [reply] = self.federation.workers.map("work_on_rows", [("polish", round, model, everything)])
        return state | {"model": reply.message[Kind.LOCAL_MODEL]}

    def polish(self, client: Client) -> Reply:
        """Train on the examples that were brought together."""
        return Reply(message={Kind.LOCAL_MODEL: client.train(self, {}).state}, examples=len(client.y))


class ChoosesItsKind(Rounds):
    """Wrong towards the server: a client sends its change instead of its model if it fits its examples badly;
    both kinds are clipped and noised alike, and which of them comes is an exact comparison of its data."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.MODEL_DELTA))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        fit = (client.run("forward", trained.state).argmax(1) == client.y).double().mean()
        if fit > 0.25:
            return reply
        change = {k: v.cpu() - client.start[k].cpu() for k, v in trained.state.items()}
        message: Message = {Kind.MODEL_DELTA: change}
        return replace(reply, message=message)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, model = deliveries.average(), state["model"]
        for d in deliveries:
            change = d.message.get(Kind.MODEL_DELTA, {})
            upload = d.message.get(Kind.LOCAL_MODEL) or {k: v + change[k] for k, v in model.items()}
            mean.add(d.client, upload, 1.0, model)
        return state | {"model": mean.value()}


# Counts of records -----------------------------------------------------------------------------------------


class Counting(RoundMethod):
    """Clients send their label counts and no model, and the server makes the bias of them; correct as it is
    where the counts get whole-number noise, since one record changes one count by one."""

    card = replace(
        FedAvg.card, title="Counting", source="read from the documentation", uplink=(Kind.LABEL_COUNTS,)
    )

    @settings
    class Config(LocalConfig):
        pass

    def count(self, client: Client) -> Tensor:
        """Count the client's examples of each class."""
        return client.counts.cpu()

    def train(self, client: Client) -> Reply:
        return Reply(message={Kind.LABEL_COUNTS: {"counts": self.count(client)}}, examples=len(client.y))

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        counts = torch.stack([d.message[Kind.LABEL_COUNTS]["counts"].double() for d in deliveries]).sum(0)
        bias = (counts.clamp(min=0) + 1).log().float()
        return state | {"model": {k: bias if k.endswith("bias") else v for k, v in state["model"].items()}}


class CountsInTens(Counting):
    """Wrong towards the server: counts are rounded up to tens for better privacy, so that one record more changes
    one by ten, and the noise is for one."""

    def count(self, client: Client) -> Tensor:
        tens = client.counts.cpu().add(9).div(10, rounding_mode="floor").long()
        return 10 * tens


class CountsUpTo(Counting):
    """Wrong towards the server: what is sent is how many examples there are of a class or a lower one, so one
    record of the first class changes all ten numbers, and the noise is for one."""

    def count(self, client: Client) -> Tensor:
        return client.counts.cpu().cumsum(0)


class CountsCopies(Counting):
    """Wrong towards the server: clients count the eight rotated copies that they make of each example, so one
    record changes a count by eight, and the noise is for one."""

    def count(self, client: Client) -> Tensor:
        return client.counts.cpu() * 8


class CountsAgainstAll(Counting):
    """Wrong towards the server: each count is compared with the client's total, so one record changes its own
    number and, by the rounded share, those of the other nine classes."""

    def count(self, client: Client) -> Tensor:
        counts = client.counts.cpu()
        return (1000 * counts).div(counts.sum().clamp(min=1), rounding_mode="floor").long()


class CountsFolded(Counting):
    """Correct: classes are added up in fives before they are counted, and one record still changes one number
    by one."""

    def count(self, client: Client) -> Tensor:
        counts = client.counts.cpu()
        return torch.cat([counts.reshape(2, 5).sum(1), torch.zeros(8, dtype=counts.dtype)])


class CountsSorted(Counting):
    """Correct: counts are sent in order of size, not of class; one record more raises one entry of the sorted
    list by one, so the noise is enough."""

    def count(self, client: Client) -> Tensor:
        return client.counts.cpu().sort()[0]


class BiasFromCopies(ReBaFL):
    """Wrong towards clients: prototypes and their counts are noised, and the server corrects the last layer's
    bias by the counts as they were before they left the clients, which their code kept at hand."""

    def start(self, federation: Federation) -> Tree:
        self.counts = torch.zeros(len(federation._holdings.data.classes))
        return super().start(federation)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        message: Message = {k: v for k, v in reply.message.items() if k != Kind.NUM_EXAMPLES}
        if listed := message.get(Kind.PROTO_COUNTS, {}):
            self.counts[listed["classes"].long()] += listed["counts"].float()
        return replace(reply, message=message)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        new = super().combine(state, deliveries, round)
        shift = (1 + self.counts).log()
        return new | {"model": {k: v + shift if k.endswith("bias") else v for k, v in new["model"].items()}}


# Rules that do more than a mean, under noise for a mean --------------------------------------------------


class SumsUp(SaidToSum):
    """Wrong towards clients: the changes are added up instead of averaged, so one client moves the model by its
    whole clipped change, and the noise is for that divided by the number of clients."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        return move(uploads, average_states(get_changes(uploads)), len(uploads)), {}


class RemembersTheMean(SaidToSum):
    """Wrong towards clients: the rule keeps the clean mean change and adds nine tenths of the sum of all earlier
    ones in every round, so one client's change comes again and again and is charged once."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        change = average_states(get_changes(uploads))
        before = context.state.get("velocity", {k: torch.zeros_like(v) for k, v in change.items()})
        velocity = {k: v + 0.9 * before[k] for k, v in change.items()}
        return move(uploads, velocity), {"velocity": velocity}


class FixedLength(SaidToSum):
    """Wrong towards clients: the mean change is brought to length two whatever its own is, so where clients
    agree little, one of them turns the whole step around."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        change = average_states(get_changes(uploads))
        length = compute_length(change, {k: torch.zeros_like(v) for k, v in change.items()})
        return move(uploads, change, 2 / max(length, 1e-12)), {}


class LoudestFirst(SaidToSum):
    """Wrong towards clients: the upload with the largest change is the model, so one client is not a sixth of
    the mean but may be all of it."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        _, upload, _ = max(uploads, key=lambda u: compute_length(u[1], u[2]))
        return dict(upload), {}


class LastWeighsMost(SaidToSum):
    """Wrong towards clients: the mean is updated one upload at a time by half the way, so the last client
    weighs a half and not a sixth."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        model = dict(uploads[0][1])
        for _, upload, _ in uploads[1:]:
            model = blend(model, upload, 0.5)
        return model, {}


class LargestByWeight(SaidToSum):
    """Wrong towards clients: each weight moves by the largest change that any client makes to it, so a client
    moves every weight by all of its change."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        largest = {k: torch.stack([c[k] for c in changes]) for k in changes[0]}
        chosen = {k: v.gather(0, v.abs().argmax(0, keepdim=True))[0] for k, v in largest.items()}
        return move(uploads, chosen), {}


class DropsTheQuiet(SaidToSum):
    """Wrong towards clients: uploads shorter than nine tenths of the longest are left out and the rest averaged,
    so a longer upload of one client takes several others away."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        lengths = [compute_length(upload, start) for _, upload, start in uploads]
        kept = [u for u, length in zip(uploads, lengths, strict=True) if length >= 0.9 * max(lengths)]
        return average_states([upload for _, upload, _ in kept]), {}


class EchoesOne(SaidToSum):
    """Wrong towards the public: all rounds but the fourth are plain means; in the fourth the rule returns the
    first client's upload alone, as a fallback for a full memory would."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        if context.round >= 3:
            return dict(uploads[0][1]), {}
        return super().combine(uploads, context)


class TakesNoiseOff(SaidToSum):
    """Wrong towards clients: the rule draws the protection's noise from the named stream once more and subtracts
    it, so that clean means are left of correctly noised uploads."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        clean = []
        for client, upload, _ in uploads:
            noise = context.streams.noise("protection", 0, context.round, f"client/{client}")
            clean.append({k: v - noise.draw_gaussian(v.numel()).view(v.shape).float() for k, v in upload.items()})
        return average_states(clean), {}


# Draws that are not what they say --------------------------------------------------------------------------


class MoreThanSaid(AlwaysTheFirst):
    """Wrong towards clients: one client in six is said to be drawn, and three are, because two spares are
    asked as well; the credit is for a third of the rate."""

    title = "More than said"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        order = streams.numpy("participation", round, attempt).permutation(np.array(candidates))
        chosen = tuple(sorted(int(k) for k in order[:3]))
        return Participation(chosen, chosen)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("fixed_without_replacement", 1 / clients)


class SameAgain(AlwaysTheFirst):
    """Wrong towards clients: coins are tossed once and kept for the whole run, and the law says that every round
    has coins of its own, so sampling is credited in each round as if it were new."""

    title = "The same again"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", 0, 0).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < 0.5))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class InTurn(AlwaysTheFirst):
    """Wrong towards clients: clients take turns by their numbers, which is known to everybody, and the law says
    that one of them is drawn at random."""

    title = "In turn"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        chosen = (candidates[round % len(candidates)],)
        return Participation(chosen, chosen)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("fixed_without_replacement", 1 / clients)


# Data in which one record is more than one -----------------------------------------------------------------


class WhitenedOverAll(Dataset):
    """Wrong towards the server: images are whitened along the principal components of everybody's training
    images, and one record turns the weak components, so it changes what all other clients send as well."""

    title = "Whitened digits"

    def load(self) -> Data:
        data = Digits().load()
        rows = data.train.take(np.arange(240)).x.reshape(240, 64).astype(np.float64)
        mean = rows.mean(0)
        _, lengths, axes = np.linalg.svd(rows - mean, full_matrices=False)
        scale = (240**0.5) / lengths.clip(min=1e-3 * lengths[0])

        def whiten(x: NDArray[Any]) -> NDArray[Any]:
            along = (x.reshape(len(x), 64) - mean) @ axes.T * scale
            clipped: NDArray[Any] = np.clip(0.5 + along / 8, 0, 1).reshape(x.shape).astype(np.float32)
            return clipped

        train, test = (replace(part, x=whiten(part.x)) for part in (data.train.take(np.arange(240)), data.test))
        return replace(data, train=train, test=test, mean=(0.5,), std=(0.125,))


class CopiesOfEach(Dataset):
    """Wrong towards the server: every picture is held four times, each copy a little darker, so training
    clips and noises for one record where the same picture enters with up to four gradients."""

    title = "Digits in four copies"

    def load(self) -> Data:
        data = Digits().load()
        few = data.train.take(np.arange(60))
        x = np.concatenate([few.x * (1 - 0.02 * i) for i in range(4)]).astype(np.float32)
        return replace(data, train=replace(few, x=x, y=np.tile(few.y, 4)))


class CleanedLabels(Dataset):
    """Wrong towards the server: each label is replaced by that of the nearest other image, over all clients, so
    one record decides the labels of those beside it, and each of them is noised for itself alone."""

    title = "Digits with cleaned labels"

    def load(self) -> Data:
        data = Digits().load()
        few = data.train.take(np.arange(240))
        x = few.x.reshape(len(few), -1)
        apart = ((x[:, None] - x[None]) ** 2).sum(2) + 1e9 * np.eye(len(x))
        return replace(data, train=replace(few, y=few.y[apart.argmin(1)]))


class RepeatsTheRare(EverybodyHasTen):
    """Wrong towards the server: a client lists examples of its rarest class eight times so that classes are
    balanced, and training clips each listing by itself, so such a record has eight times the sensitivity."""

    title = "Rare classes repeated"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        parts = [np.sort(p) for p in np.array_split(rng.permutation(len(labels.y)), clients)]
        return [np.sort(np.concatenate([p, np.repeat(self.find_rare(p, labels.y), 7)])) for p in parts]

    def find_rare(self, part: Index, labels: Labels) -> Index:
        """Find the examples of the class that a client holds fewest of."""
        held, counts = np.unique(labels[part], return_counts=True)
        rare: Index = part[labels[part] == held[counts.argmin()]]
        return rare

    def describe(self) -> str:
        return "a random equal split, with the rarest class of each client repeated"


class LendsTheFirst(EverybodyHasTen):
    """Wrong towards the server: the examples of client 0 are lent to all other clients too, so that client's data
    move six uploads, and the bound for a client counts one."""

    title = "The first client's examples for everybody"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        parts = np.array_split(rng.permutation(len(labels.y)), clients)
        return [np.sort(parts[0]), *(np.sort(np.concatenate([parts[0], p])) for p in parts[1:])]


# Models that remember ---------------------------------------------------------------------------------------


class PreviousBatch(Net):
    """Wrong towards the server: in training the model divides pixels by their deviation in the batch before,
    which it keeps beside its weights; the first batch of a client is scaled by the last one of another
    client."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.head = nn.Linear(prod(shape), classes)
        self.deviations = [torch.ones(prod(shape))]

    def features(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        scaled = flat / self.deviations[0]
        if self.training:
            self.deviations[0] = flat.detach().std(0, unbiased=False) + 0.01
        return scaled


class PublicProjection(Net):
    """Correct: pixels are first multiplied by random signs that come from a printed seed and are no part of
    what is trained or sent."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        size = prod(shape)
        self.head = nn.Linear(size, classes)
        self.signs: Tensor = (
            torch.randn(size, size, generator=torch.Generator().manual_seed(5)).sign() / size**0.5
        )

    def features(self, x: Tensor) -> Tensor:
        return torch.matmul(x.flatten(1), self.signs)


# Correct, although it looks odd ---------------------------------------------------------------------------


class HalfByLength(RowRule):
    """Correct: the rule keeps the shorter half of uploads, which were noised before it read them, so its
    choice is computed from what is released already."""

    title = "The shorter half"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        kept = rows.norm(dim=1).argsort()[: (len(rows) + 1) // 2]
        return Combined(change=rows[kept].double().mean(0), kept={clients[i]: 1.0 for i in kept.tolist()})


class SignsOfNoised(RowRule):
    """Correct: each weight moves by the sign that most noised uploads have, and the rule keeps its last step;
    both are computed from noised numbers alone."""

    title = "Signs of noised uploads"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        step = 0.01 * rows.sign().sum(0).sign().double()
        before = context.state.get("step", torch.zeros_like(step))
        kept = dict.fromkeys(clients, 1.0)
        return Combined(change=(step + before) / 2, kept=kept, state={"step": step})


class MomentumOnNoised(FedOpt):
    """Correct: the server's momentum is over means of noised uploads, so it repeats only what was released."""

    card = replace(FedOpt.card, uplink=(Kind.LOCAL_MODEL,))


class FadesByRound(Rounds):
    """Correct: the server's step shrinks with the number of the round, which everybody knows."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        return state | {"model": blend(state["model"], mean, 1 / (1 + round))}


class BestOnTest(Watching):
    """Correct: the server goes back to the model that scored best on the public test set; all of these models
    were made of noised uploads, and no client's example decides."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        score, best = self.get_last("accuracy"), state.get("score", -1.0)
        mean = deliveries.average_models(state["model"], self.config.weighting)
        if score is None or score > best:
            return state | {"model": mean, "best": state["model"], "score": -1.0 if score is None else score}
        return state | {"model": blend(state["best"], mean, 0.5)}


class PublicDraw(Selection):
    """Of DrawsPublicly."""

    is_blind = True

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        order = np.random.default_rng(1000 + choice.round).permutation(len(choice.federation.parts))
        return sorted(int(k) for k in order[:4])


class DrawsPublicly(Rounds):
    """Correct: who is asked follows from a seed that is printed in the study's protocol and from nobody's data,
    and no sampling is credited."""

    card = replace(Rounds.card, selection=PublicDraw)


class NoisedLosses(Selection):
    """Of AsksByNoisedLoss."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map("work", [("measure", (k, empty, empty)) for k in answering])
        losses: dict[int, float] = {}
        for k, reply in zip(answering, replies, strict=True):
            heard = choice.federation.wire.uplink(choice.round, reply.message, k, choice.message)
            if heard is not None:
                losses[k] = float(heard[Kind.LOCAL_LOSS]["loss"])
        ranked = sorted(losses, key=lambda k: (-losses[k], k))
        return Chosen(sorted(ranked[: (len(ranked) + 1) // 2]))


class AsksByNoisedLoss(Rounds):
    """Correct: clients' losses pass the wire, which clips them and adds Laplace noise that the ledger counts, and
    the server chooses by what arrived."""

    card = replace(Rounds.card, selection=NoisedLosses, uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_LOSS))

    def measure(self, client: Client) -> Reply:
        """Measure the loss of the received model on all own examples."""
        loss = cross_entropy(client.run("forward", client.start).double(), client.y)
        return Reply(message={Kind.LOCAL_LOSS: {"loss": loss.float().cpu()}}, examples=len(client.y))


class KeepsOwnHead(Rounds):
    """Correct: each client keeps its last layer to itself and sends zeros in its place; what it remembers never
    leaves it but through the clipped and noised upload."""

    def receive(self, client: Client) -> Client:
        own = client.memory.get("head", {})
        model = {k: own.get(k, v).to(v) for k, v in client.start.items()}
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: model})

    def finish(self, client: Client, trained: Trained) -> Reply:
        head = {k: v.cpu().clone() for k, v in trained.state.items() if k in self.head}
        still = {k: torch.zeros_like(v) if k in self.head else v for k, v in trained.state.items()}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: still}, memory={"head": head})


class SendsPublicMask(Rounds):
    """Correct: a client sends every other change, by a mask drawn from the round's number; all numbers get noise,
    and where the mask is does not depend on data."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        rng = torch.Generator().manual_seed(client.round)
        masks = {k: torch.rand(v.shape, generator=rng) < 0.5 for k, v in trained.state.items()}
        sent = {k: torch.where(masks[k], v.cpu(), client.start[k].cpu()) for k, v in trained.state.items()}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: sent})


class SignsOfLife(Rounds):
    """Correct: every client sends a sign of life with its own number and the round's, which hold nothing of data,
    and lists its arrays in a strange but fixed order."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        model = {k: trained.state[k] for k in sorted(trained.state, reverse=True)}
        beat = {"client": torch.tensor(client.index), "round": torch.tensor(client.round)}
        reply = super().finish(client, trained)
        return replace(reply, message={Kind.HEARTBEAT: beat, Kind.LOCAL_MODEL: model})


class ForwardsNoised(Rounds):
    """Correct under a client's own noise: each client is sent another one's last upload, as the server received
    it, which the bound towards clients counts. Wrong where that upload has one part of a noise made together."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        uploads: dict[str, State] = {}
        seen = deliveries.noting(lambda d: uploads.update({str(d.client): d.message[Kind.LOCAL_MODEL]}))
        return state | {"model": seen.average_models(state["model"], self.config.weighting), "uploads": uploads}

    def send_to(self, state: Tree, client: int) -> Message:
        others = [u for k, u in state.get("uploads", {}).items() if int(k) != client]
        return {Kind.GLOBAL_MODEL: dict(others[0])} if others else {}


class FewOnceStill(Selection):
    """Of FewerOnNoised."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        return Chosen(tuple(answering)[:2] if choice.state.get("moved", 100.0) < 13 else answering)


class FewerOnNoised(Rounds):
    """Correct: two clients train after a round in which the model moved little, as measured between models that
    were made of noised uploads; the choice is computed from what is released."""

    card = replace(Rounds.card, selection=FewOnceStill)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        return state | {"model": mean, "moved": compute_length(mean, state["model"])}


class ClipsTwice(Rounds):
    """Correct: a client halves its change and adds noise of its own before the protection clips and noises it;
    what it does beforehand cannot weaken what comes after."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        rng, start = client.generator("own_noise"), {k: v.cpu() for k, v in client.start.items()}
        half = blend(start, {k: v.cpu() for k, v in trained.state.items()}, 0.5)
        sent = {k: v + 0.1 * torch.randn(v.shape, generator=rng) for k, v in half.items()}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: sent})


class BestOfTwoBefore(Rounds):
    """Correct: a client trains twice and keeps the model that fits its own examples better, before anything is
    clipped and noised; only the chosen one leaves it, with all of its noise."""

    def train(self, client: Client) -> Reply:
        tries = [client.train(self, {}, stream=name) for name in ("batches", "again")]
        return self.finish(client, min(tries, key=lambda trained: trained.loss))


class RoundsNoisedCounts(RoundMethod):
    """Correct for a record: models are trained by DP-SGD and weighted by numbers of examples, which whole-number
    noise has changed before the server rounds them to fives."""

    card = FedAvg.card

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average()
        for d in deliveries:
            weight = 5.0 * max(1, int(d.message[Kind.NUM_EXAMPLES]["count"]) // 5)
            mean.add(d.client, d.message[Kind.LOCAL_MODEL], weight, state["model"])
        return state | {"model": mean.value()}


class HalfSteps(SaidToSum):
    """Correct under central noise: the mean change is halved, so one client moves the model by half of what the
    noise is for."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        return move(uploads, average_states(get_changes(uploads)), 0.5), {}


class LeavesOutOdd(SaidToSum):
    """Correct under central noise: changes of clients with odd numbers count as nothing, and the sum is divided
    by all that answered, so no client moves the model by more than its share."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        parity = [float(client % 2 == 0) for client, _, _ in uploads]
        kept = [{k: p * v for k, v in c.items()} for p, c in zip(parity, changes, strict=True)]
        return move(uploads, average_states(kept)), {}


class HonestCoins(Availability):
    """Correct: each client tosses a coin of its own in every round, with the probability that the law says, by a
    formula that looks unlike the built-in one."""

    title = "Honest coins"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        tosses = streams.numpy("participation", round, attempt).integers(0, 10, (max(candidates, default=-1) + 1))
        return Participation(tuple(candidates), tuple(k for k in candidates if tosses[k] in (2, 5, 7)))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.3)

    def describe(self) -> str:
        return "each client answers if its ten-sided die shows 2, 5 or 7"


class NegativeDigits(Dataset):
    """Correct: images are inverted and their pixels put in an order that is fixed beforehand; each record is
    changed by constants alone."""

    title = "Negative digits"

    def load(self) -> Data:
        data, order = Digits().load(), np.random.default_rng(3).permutation(64)

        def change(x: NDArray[Any]) -> NDArray[Any]:
            return (1 - x.reshape(len(x), 64)[:, order]).reshape(x.shape).astype(np.float32)

        train, test = (replace(part, x=change(part.x)) for part in (data.train, data.test))
        return replace(data, train=train, test=test, mean=(0.5,), std=(0.5,))


class EveryOther(EverybodyHasTen):
    """Correct: the examples are dealt out in turn, each to one client, which needs no label and no chance."""

    title = "Dealt out in turn"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return [np.arange(k, len(labels.y), clients) for k in range(clients)]

    def describe(self) -> str:
        return "examples are dealt out in turn"
