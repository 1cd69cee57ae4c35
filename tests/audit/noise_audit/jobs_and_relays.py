"""More systems that make a stated bound false, and some that only look as if they did.

Written from fl/README.md and docs/ after data_beside_noise.py, of kinds that are not there: jobs before and
beside the rounds, a second upload, relays, buffers of a model, rules that fire at one number of uploads, records
that two clients hold. Every docstring says what is wrong, or why nothing is; the configs are in the .yaml beside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.aggregation.aggregator import Context
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.data.partition import Index, OwnedLabels
from fedaudit.fl.datasets.digits import Digits
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Owned
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording.coded import Coded
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, PartTraining, Trained
from fedaudit.fl.wire.protection import Message
from tests.audit.noise_audit.false_bounds_shared import (
    EverybodyHasTen,
    Rounds,
    SaidToSum,
    Uploads,
    average_states,
    blend,
    compute_length,
    get_changes,
    move,
)

# Clients whose work depends on more than the ledger counts ---------------------------------------------------


class TrainsUntilFit(Rounds):
    """Wrong towards the server: a client goes on training, by DP-SGD with as many steps each time, until its loss
    is small or it has trained three times; the ledger has the steps of one training, and data decide how many."""

    def train(self, client: Client) -> Reply:
        trained = client.train(self, {})
        for name in ("second", "third"):
            if trained.loss < 1.0:
                break
            trained = client.train(self, {}, start=trained.state, stream=name)
        return self.finish(client, trained)


class WeighsClassesOfAll(Rounds):
    """Wrong towards the server: before the first round workers are handed how many examples of each class all
    clients together hold, and every client's loss is weighted by that, so one client's labels move every
    upload."""

    shares: Tensor | None = None

    def open(self, federation: Federation) -> None:
        super().open(federation)
        held = federation._holdings
        counts = np.bincount(held.data.train.y[np.concatenate(held.parts)], minlength=len(held.data.classes))
        self.shares = torch.tensor(1.0 / (1.0 + counts), dtype=torch.float32)

    def compute_constants(self, client: Client) -> Constants:
        return {"shares": self.shares}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        shares: Tensor = const["shares"][y]
        return (cross_entropy(net(x), y, reduction="none") * shares).mean() * 100


class AskedWhenUnsure(Selection):
    """Of AsksAgainWhenUnsure."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map("work", [("measure", (k, empty, empty)) for k in answering])
        for k, reply in zip(answering, replies, strict=True):
            if reply.message:
                choice.federation.wire.uplink(choice.round, reply.message, k, choice.message)
        return Chosen(answering)


class AsksAgainWhenUnsure(Rounds):
    """Wrong towards the server: clients whose loss of the received model is large send it, clipped and noised,
    before they train; each value has its line, and who sends one is an exact comparison."""

    card = replace(Rounds.card, selection=AskedWhenUnsure, uplink=(Kind.LOCAL_MODEL, Kind.LOCAL_LOSS))

    def measure(self, client: Client) -> Reply:
        """Measure the loss of the received model, and send it if it is large."""
        loss = cross_entropy(client.run("forward", client.start), client.y).cpu()
        message: Message = {Kind.LOCAL_LOSS: {"loss": loss}} if float(loss) > 2.0 else {}
        return Reply(message=message, examples=len(client.y))


class RehearsedWhenFar(Selection):
    """Of UploadsTwiceWhenFar."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map("work", [("rehearse", (k, empty, empty)) for k in answering])
        for k, reply in zip(answering, replies, strict=True):
            if reply.message:
                choice.federation.wire.uplink(choice.round, reply.message, k, choice.message)
        return Chosen(answering)


class UploadsTwiceWhenFar(Rounds):
    """Wrong towards the server: clients upload before the round's training a model that they train in vain,
    noised and listed, if it has moved far; a second upload of a round tells how far the clean one went."""

    card = replace(Rounds.card, selection=RehearsedWhenFar)

    def rehearse(self, client: Client) -> Reply:
        """Train once and send the model if it is far from the received one."""
        trained = client.train(self, {}, stream="rehearsal")
        start = {k: v.cpu() for k, v in client.start.items()}
        is_far = compute_length(trained.state, start) > 2.0
        message: Message = {Kind.LOCAL_MODEL: trained.state} if is_far else {}
        return Reply(message=message, examples=len(client.y))


class CompressesWell(Rounds):
    """Correct, although meant as wrong: uploads are coded in a number of bytes that depends on their clean
    changes; a protection makes plain arrays of them, which are sent in as many bytes as they take."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        start = {k: v.cpu() for k, v in client.start.items()}
        large = sum(int(((v - start[k]).abs() > 1e-3).sum()) for k, v in trained.state.items())
        return replace(
            super().finish(client, trained), message={Kind.LOCAL_MODEL: Coded(trained.state, 4 * large + 8)}
        )


class OrdersItsKinds(Rounds):
    """Wrong towards the server: a client that fits its examples sends its sign of life before its model, the
    others after it; both say nothing else, and their order is one exact comparison a round."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, beat = super().finish(client, trained), {Kind.HEARTBEAT: {"alive": torch.tensor(1)}}
        ordered = beat | reply.message if trained.loss < 1.5 else reply.message | beat
        return replace(reply, message=ordered)


# Servers that use what was not released ----------------------------------------------------------------------


class QuickestHalf(Selection):
    """Of AsksTheQuickest."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        times = {int(k): float(v) for k, v in choice.state.get("times", {}).items()}
        ranked = sorted(answering, key=lambda k: (times.get(k, 0.0), k))
        return Chosen(sorted(ranked[: (len(ranked) + 1) // 2]))


class AsksTheQuickest(Rounds):
    """Wrong towards the server and clients: the half that was quickest in the round before trains; times are
    proportional to numbers of examples, and who is asked tells them."""

    card = replace(Rounds.card, selection=QuickestHalf, timed=True)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        times = dict(state.get("times", {}))
        seen = deliveries.noting(lambda d: times.update({str(d.client): d.time}))
        return state | {"model": seen.average_models(state["model"], self.config.weighting), "times": times}


class FixesInEvaluation(Rounds):
    """Wrong towards clients: the hook that lists clients' own models moves the server's model, in place, a tenth
    of the way to the mean of those, which no noise was added to."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        return replace(super().finish(client, trained), memory={"own": trained.state})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        if memory:
            mean = average_states([m["own"] for m in memory.values()])
            for name, value in blend(state["model"], mean, 0.1).items():
                state["model"][name].copy_(value)
        return iter(())


class Relaying(Rounds):
    """The base of relays: every client hands its model to the next one, and the server takes the mean as ever."""

    card = replace(Rounds.card, relay=(Kind.LOCAL_MODEL,))

    def run(self, federation: Federation) -> State:
        """Loop as a method of rounds does, whatever protection there is."""
        self.open(federation)
        state: Tree = self.start(federation)
        for t in range(self.config.rounds):
            state = self.round(t, state, {}, federation)
            federation.end_round(t, self.config.rounds, state["model"], state, {}, lambda: iter(()))
        return federation.finish(self.config.rounds, self.card, state["model"], state, {})

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        selected, answering = federation.participate(t, range(len(federation.parts)))
        tally, model = Tally(selected=len(selected)), state["model"]
        message = federation.wire.broadcast(t, self.broadcast(state), selected)
        federation.workers.everywhere("begin", t, message)
        uploads: list[State] = []
        handed: Message = {}
        for k, following in pairwise([*answering, None]):
            [reply] = federation.workers.map("train", [(k, {}, self.go_on(handed))])
            if following is not None:
                handed = federation.wire.relay(t, dict(reply.message), k, following) or {}
            received = federation.wire.uplink(t, reply.message, k, message)
            if received is not None:
                tally.heard.add(k)
                tally.add(received, reply.examples, reply.stats)
                uploads.append(received[Kind.LOCAL_MODEL])
        mean = average_states(uploads) if uploads else model
        if federation.wire.chain.central:
            mean = federation.wire.average(t, model, mean, tally.delivered, len(federation.parts))
        federation.tally = tally
        return state | {"model": mean}

    def go_on(self, handed: Message) -> Message:
        """Say what a client starts from, given what it was handed: the server's model as ever."""
        return {}


class RelaysUnderCentral(Relaying):
    """Wrong towards clients: noise is added to the mean, and before that every client hands its clipped model,
    without any, to the next client."""


# Rules that do more than a mean, under noise for a mean --------------------------------------------------------


class ReturnsOneOfFour(SaidToSum):
    """Wrong towards clients: with four uploads, and only then, the rule returns the first one instead of the
    mean, a case of a table of rules that nobody looked at again."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        if len(uploads) == 4:
            return dict(uploads[0][1]), {}
        return super().combine(uploads, context)


class WeighsByLength(SaidToSum):
    """Wrong towards clients: uploads are weighted by one over their length, so that all count alike; a client
    that hardly moved then weighs nearly as much as all together."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        zero = {k: torch.zeros_like(v) for k, v in changes[0].items()}
        lengths = [max(compute_length(c, zero), 1e-6) for c in changes]
        total = sum(1 / length for length in lengths)
        mean = {
            k: sum((c[k] / (length * total) for c, length in zip(changes, lengths, strict=True)), zero[k])
            for k in zero
        }
        return move(uploads, mean), {}


class LargerOfTwoMeans(SaidToSum):
    """Wrong towards clients: of the means of even and of odd clients each weight takes the larger, so one client
    moves it by a third of its change where the noise is for a sixth."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        halves = [[u for u in uploads if u[0] % 2 == side] for side in (0, 1)]
        means = [average_states(get_changes(half)) for half in halves if half]
        larger = {k: torch.stack([m[k] for m in means]).amax(0) for k in means[0]}
        return move(uploads, larger), {}


class DrawsOneUpload(SaidToSum):
    """Wrong towards clients: the rule returns the upload of a client that it draws at random, which is right on
    average and shows one client whole."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        chosen = int(torch.randint(len(uploads), (1,), generator=context.generator()))
        return dict(uploads[chosen][1]), {}


class SpeedsUpWhenTheyAgree(SaidToSum):
    """Wrong towards clients: where uploads point the same way the step is up to four times the mean, so one
    client that turns round changes the length of all others' steps."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        zero = {k: torch.zeros_like(v) for k, v in changes[0].items()}
        mean = average_states(changes)
        longest = max(compute_length(c, zero) for c in changes)
        agreement = compute_length(mean, zero) / max(longest, 1e-12)
        return move(uploads, mean, 1 + 3 * agreement), {}


# Models and data -----------------------------------------------------------------------------------------------


class CountsLitPixels(Net):
    """Wrong towards the server: beside its weights the model keeps how many bright pixels it has seen in
    training, a whole number, which is sent with the weights and which no noise fits. Correct towards clients
    under central noise, whose server keeps the number that it had."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.head = nn.Linear(prod(shape), classes)
        self.lit: Tensor
        self.register_buffer("lit", torch.zeros((), dtype=torch.int64))

    def features(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        if self.training:
            self.lit += (flat.detach() > 1).sum()
        return flat


def double_first(data: Data, change: float) -> Data:
    """The first 240 digits, of which the first 60 are there once more, darker by a share of `change`."""
    few = data.train.take(np.arange(240))
    x: NDArray[Any] = np.concatenate([few.x, few.x[:60] * (1 - change)]).astype(np.float32)
    return replace(data, train=replace(few, x=x, y=np.concatenate([few.y, few.y[:60]])))


class TwinsNearlyAlike(Dataset):
    """Wrong towards the server: the first sixty pictures are held once more by other clients, a thousandth
    darker, so they count as other records, and each has two."""

    title = "Digits with twins, nearly alike"

    def load(self) -> Data:
        return double_first(Digits().load(), 1e-3)


class TwinsAlike(Dataset):
    """Right, since a record is its content: the first sixty pictures are held once more by other clients, under
    other numbers, and what both holders send is composed."""

    title = "Digits with twins"

    def load(self) -> Data:
        return double_first(Digits().load(), 0.0)


class NextHasMine(EverybodyHasTen):
    """Wrong towards the server: every client gets the examples of the client before it as well, so one client's
    data move two uploads, and the bound for a client counts one."""

    title = "The neighbour's examples too"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        parts = np.array_split(rng.permutation(len(labels.y)), clients)
        return [np.sort(np.concatenate([parts[k - 1], parts[k]])) for k in range(clients)]


# Correct, although it looks odd ---------------------------------------------------------------------------


class AmplifiesNoised(Rounds):
    """Correct: the server goes three times as far as the mean of noised uploads says, which uses nothing else."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average_models(state["model"], self.config.weighting)
        return state | {"model": blend(state["model"], mean, 3.0)}


class EpochsBySize(Rounds):
    """Correct for a client: who holds more examples passes over them more often; the whole upload is clipped and
    noised whatever made it."""

    def train(self, client: Client) -> Reply:
        more = PartTraining(self, replace(self.config, local_epochs=1 + len(client.y) // 30))
        return self.finish(client, client.train(more, {}))


class KeepsTheRest(Rounds):
    """Correct: a client sends half of its change and adds the other half to the next one; it remembers its own
    data alone, and what it sends is clipped and noised each time."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        start = {k: v.cpu() for k, v in client.start.items()}
        before: Mapping[str, Tensor] = client.memory.get("rest", {})
        change = {k: v - start[k] + before.get(k, 0.0) for k, v in trained.state.items()}
        sent = {k: start[k] + 0.5 * v for k, v in change.items()}
        rest = {k: 0.5 * v for k, v in change.items()}
        reply = super().finish(client, trained)
        return replace(reply, message={Kind.LOCAL_MODEL: sent}, memory={"rest": rest})


class LargestTenth(Rounds):
    """Correct: a client sends the largest tenth of its changes and zeros for all others; every number gets noise,
    so nobody sees which they are."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        start, sent = {k: v.cpu() for k, v in client.start.items()}, {}
        for name, value in trained.state.items():
            change = value - start[name]
            least = change.abs().flatten().quantile(0.9)
            sent[name] = start[name] + torch.where(change.abs() >= least, change, torch.zeros_like(change))
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: sent})


class RelaysNoised(Relaying):
    """Correct under a client's own noise: what a client hands on is clipped, noised and listed like an upload,
    and the bound towards clients counts it."""


class GoesOnFromRelay(Relaying):
    """Correct under a client's own noise: a client goes on from the model that it was handed, and uploads the
    outcome; so the server reads of what was handed on as well, and its bound has to count that."""

    def go_on(self, handed: Message) -> Message:
        return {Kind.GLOBAL_MODEL: handed[Kind.LOCAL_MODEL]} if handed else {}


class Rehearsed(Selection):
    """Of UploadsTwice."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        empty: Tree = {}
        replies = choice.federation.workers.map("work", [("rehearse", (k, empty, empty)) for k in answering])
        for k, reply in zip(answering, replies, strict=True):
            choice.federation.wire.uplink(choice.round, reply.message, k, choice.message)
        return Chosen(answering)


class UploadsTwice(Rounds):
    """Correct: every client sends a model before the round's training too; both uploads are noised and both
    listed."""

    card = replace(Rounds.card, selection=Rehearsed)

    def rehearse(self, client: Client) -> Reply:
        """Train once and send the model."""
        trained = client.train(self, {}, stream="rehearsal")
        return Reply(message={Kind.LOCAL_MODEL: trained.state}, examples=len(client.y))
