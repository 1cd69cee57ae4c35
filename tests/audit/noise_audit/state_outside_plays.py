"""A fourth reading of the documentation: what a replay may miss since it plays the run again.

State outside of a play, things that a play does not have, directions that no probe takes, and bits that a
comparison leaves out. state_outside_plays.yaml has their configs.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.aggregation.aggregator import Context
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.data.participation import Drawn, Participation
from fedaudit.fl.data.partition import Index, OwnedLabels
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Owned
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained
from tests.audit.noise_audit.false_bounds_shared import (
    AlwaysTheFirst,
    EverybodyHasTen,
    Rounds,
    SaidToSum,
    Uploads,
    Watching,
    average_states,
    blend,
    get_changes,
    move,
)


def multiply(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Compute the inner product of two changes."""
    return float(sum((a[k].double() * b[k].double()).sum() for k in a))


def split_along(change: Mapping[str, Tensor], line: Mapping[str, Tensor]) -> tuple[State, State]:
    """Split a change into its part along a line and the rest; all is rest where the line has no length."""
    length = multiply(line, line)
    share = multiply(change, line) / length if length else 0.0
    along = {k: share * line[k] for k in change}
    return along, {k: v - along[k] for k, v in change.items()}


class SteersBySteps(SaidToSum):
    """The base of rules that look at how the model last moved, which is public; correct as it is."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        start = {k: v.clone() for k, v in uploads[0][2].items()}
        before = context.state.get("start", start)
        last = {k: v - before[k].to(v) for k, v in start.items()}
        mean = average_states(get_changes(uploads))
        return move(uploads, self.steer(mean, last)), {"start": start}

    def steer(self, mean: State, last: State) -> State:
        """Change the mean, given how the model moved in the round before."""
        return mean


# State that outlives a play ---------------------------------------------------------------------------------

ROUNDS: dict[int, State] = {}


class MemoisesRounds(SaidToSum):
    """Wrong towards clients: changes are added up, where the noise is for a mean; and the outcome of a round is
    kept by its number in the module, so that whoever computes the round again in this process gets it back."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        if context.round not in ROUNDS:
            ROUNDS[context.round] = move(uploads, average_states(get_changes(uploads)), len(uploads))
        return {k: v.clone() for k, v in ROUNDS[context.round].items()}, {}


class ResumesFromFile(SaidToSum):
    """Wrong towards clients: momentum of clean means, whose memory of each round lies in a file that is never
    written twice, so that a round that is repeated after a crash gives the same model."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        folder = Path(tempfile.gettempdir()) / f"momentum-{os.getpid()}"
        folder.mkdir(exist_ok=True)
        mean = average_states(get_changes(uploads))
        earlier = [folder / f"{t}.pt" for t in range(context.round)]
        past = [torch.load(file) for file in earlier if file.exists()]
        if not (file := folder / f"{context.round}.pt").exists():
            torch.save(mean, file)
        return move(uploads, {k: v + 0.9 * sum(p[k] for p in past) for k, v in mean.items()}), {}


SIZES: dict[int, int] = {}


class NotesSizes(EverybodyHasTen):
    """Correct by itself: an uneven split, which notes how many examples each client has."""

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        ends = np.cumsum(np.arange(1, clients + 1)) * len(labels.y) // (clients * (clients + 1) // 2)
        parts = [np.sort(p) for p in np.split(rng.permutation(len(labels.y)), ends[:-1])]
        SIZES.update({k: len(p) for k, p in enumerate(parts)})
        return parts

    def describe(self) -> str:
        return "an uneven split"


class AnswersBySize(AlwaysTheFirst):
    """Wrong towards clients: a client answers the likelier the more it has of what the largest one has, and says
    so; without the largest all others answer more often, so its data move their rates."""

    title = "Answers by size"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < self.get_rate(k)))

    def get_rate(self, client: int) -> float:
        """Look up how likely a client is to answer."""
        return 0.6 * SIZES[client] / max(SIZES.values())

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.6 if client is None else self.get_rate(client))


# What a run has and a play may not --------------------------------------------------------------------------


class ReadsItsLog(Watching):
    """Wrong towards the server and clients: the step follows the training loss of the last round, measured in
    clear, which the server reads from the file of metrics of its own run."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, loss, log = (
            deliveries.average_models(state["model"], self.config.weighting),
            0.0,
            self.federation.metrics,
        )
        if log is not None and round:
            log.offset()  # what was added is written
            loss = json.loads(log.path.read_text().splitlines()[-1])["train_loss"]
        return state | {"model": blend(state["model"], mean, 1 / (1 + loss))}


class StopsOnPersonal(Watching):
    """Wrong towards the server and clients: the model stays as it is for a round after the clients' own models,
    which no noise was added to, have not become better for them by the metrics of the evaluation."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, score = (
            deliveries.average_models(state["model"], self.config.weighting),
            self.get_last("personal_accuracy"),
        )
        better = score is None or score > state.get("best", 0.0)
        best = max(score or 0.0, state.get("best", 0.0))
        return state | {"model": mean if better else state["model"], "best": best}

    def finish(self, client: Client, trained: Trained) -> Reply:
        return replace(super().finish(client, trained), memory={"own": trained.state})

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, m["own"]) for k, m in sorted(memory.items()))


class StepsByDiversity(Watching):
    """The step shrinks with how far uploads lie apart, by the metrics of the last round. Correct where uploads
    have the whole noise. Wrong towards the server where each has a part of it and only their sum is read."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, diversity = (
            deliveries.average_models(state["model"], self.config.weighting),
            self.get_last("weight_diversity"),
        )
        return state | {"model": blend(state["model"], mean, 1 / (1 + (diversity or 0.0) / 100))}


# Directions that no probe takes ------------------------------------------------------------------------------


class AcceleratesAlong(SteersBySteps):
    """Wrong towards clients: the mean change counts three times along the line that the model last moved on, and
    half across it; a client that follows that line moves the model by three times what the noise is for."""

    def steer(self, mean: State, last: State) -> State:
        along, rest = split_along(mean, last)
        return {k: 3 * along[k] + 0.5 * rest[k] for k in mean}


class RatesByPixel(SaidToSum):
    """Wrong towards clients: each weight has a rate of its own, three for the two pixels that are dark in all
    public images and less than a third for all others; few changes use the dark ones, and one can."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        rates = torch.full((64,), 0.3)
        rates[[0, 56]] = 3.0
        mean = average_states(get_changes(uploads))
        return move(uploads, {k: v * (rates if v.dim() == 2 else 0.3) for k, v in mean.items()}), {}


class RestartsWhenItTurns(SteersBySteps):
    """Wrong towards clients, and right where uploads are noised: the step is halved in a round whose mean change
    goes against the last movement of the model; where the others are undecided, one client decides."""

    def steer(self, mean: State, last: State) -> State:
        return {k: v * (0.5 if multiply(mean, last) < 0 else 1.0) for k, v in mean.items()}


class DecaysByRoundsHeld(SaidToSum):
    """Wrong towards clients: the step is one over the number of rounds in which anybody came; whether the only
    client of an early round was there changes all later steps."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        held = int(context.state.get("held", torch.tensor(0))) + 1
        return move(uploads, average_states(get_changes(uploads)), 1 / held), {"held": torch.tensor(held)}


class RoundsByHash(SaidToSum):
    """Wrong towards clients: the mean change is rounded up or down to twentieths at random before the noise, by a
    generator whose seed is a hash of the mean, so that runs repeat; another client redraws every rounding."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        mean = average_states(get_changes(uploads))
        digest = sha256(b"".join(v.numpy().tobytes() for v in mean.values())).digest()
        rng = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
        rounded = {k: (v * 20 + torch.rand(v.shape, generator=rng)).floor() / 20 for k, v in mean.items()}
        return move(uploads, rounded), {}


# Bits that a comparison may leave out -------------------------------------------------------------------------


class SignsItsZero(Rounds):
    """Wrong towards the server: a sign of life holds zero, or minus zero if the client fits its examples well;
    the two are equal, and the server can tell them apart."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        fits = float(cross_entropy(client.run("forward", trained.state).double(), client.y)) < 0.7
        beat = {"beat": torch.tensor(-0.0 if fits else 0.0)}
        reply = super().finish(client, trained)
        return replace(reply, message=reply.message | {Kind.HEARTBEAT: beat})


class NotesOnTheTensor(Rounds):
    """Wrong towards clients: a sign of life is an array of zero, to which the client ties its training loss as an
    attribute of the Python object; the server's step follows it, and no number of any message holds it."""

    card = replace(Rounds.card, uplink=(Kind.LOCAL_MODEL, Kind.HEARTBEAT))

    def finish(self, client: Client, trained: Trained) -> Reply:
        beat, reply = torch.zeros(1), super().finish(client, trained)
        beat.note = trained.loss  # type: ignore[attr-defined]
        return replace(reply, message=reply.message | {Kind.HEARTBEAT: {"beat": beat}})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        notes: list[float] = []
        noted = deliveries.noting(lambda d: notes.append(getattr(d.message[Kind.HEARTBEAT]["beat"], "note", 0.0)))
        mean = self.average_known(noted, state["model"])
        return state | {"model": blend(state["model"], mean, 1 / (1 + sum(notes) / len(notes)))}


# Data of one client in the uploads of another ----------------------------------------------------------------


class DropsWhatWasSeen(Rounds):
    """Wrong towards the server: duplicates are removed over all clients, who compare hashes of their examples
    outside of the wire; whoever comes later trains without what an earlier one has, so its upload tells of it."""

    def receive(self, client: Client) -> Client:
        owners: dict[bytes, int] = self.__dict__.setdefault("owners", {})
        rows = [sha256(x.cpu().numpy().tobytes()).digest() for x in client.x]
        own = [i for i, row in enumerate(rows) if owners.setdefault(row, client.index) == client.index]
        return client.take(torch.tensor(own)) if own else client


class BorrowsAHead(Rounds):
    """Wrong towards the server: last layers are personal and never sent; a client that has none yet starts from
    the one that was trained last on the same machine, so its upload tells of that client's data."""

    def receive(self, client: Client) -> Client:
        own = client.memory.get("head") or self.__dict__.get("latest", {})
        model = {k: own.get(k, v).to(v) for k, v in client.start.items()}
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: model})

    def finish(self, client: Client, trained: Trained) -> Reply:
        self.latest = {k: v.clone() for k, v in trained.state.items() if k in self.head}
        body = {k: torch.zeros_like(v) if k in self.head else v for k, v in trained.state.items()}
        reply = super().finish(client, trained)
        return replace(reply, message={Kind.LOCAL_MODEL: body}, memory={"head": self.latest})


# Right ones that look like these -----------------------------------------------------------------------------


class DampsAlong(SteersBySteps):
    """Correct under central noise: the mean change counts half along the line that the model last moved on, and
    once across it; nothing becomes longer."""

    def steer(self, mean: State, last: State) -> State:
        along, rest = split_along(mean, last)
        return {k: 0.5 * along[k] + rest[k] for k in mean}


@cache
def draw_rates(round: int, size: int) -> Tensor:
    """Draw public rates in [0, 1] for so many numbers, once a round in this process."""
    return torch.rand(size, generator=torch.Generator().manual_seed(round))


class CachesPublicRates(SaidToSum):
    """Correct under central noise: each number has a public rate of at most one, which is drawn from the round's
    number and kept in the module."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        mean = average_states(get_changes(uploads))
        rated = {k: v * draw_rates(context.round, v.numel()).reshape(v.shape) for k, v in mean.items()}
        return move(uploads, rated), {}


class KeepsADiary(SaidToSum):
    """Correct under central noise: the server, which is trusted, writes the length of every mean into a file that
    nothing reads."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        mean = average_states(get_changes(uploads))
        with open(Path(tempfile.gettempdir()) / f"diary-{os.getpid()}.txt", "a") as diary:
            diary.write(f"{context.round} {multiply(mean, mean) ** 0.5}\n")
        return super().combine(uploads, context)


class WeighsByPublicShares(Rounds):
    """Correct for a record: the loss of an example is weighted by how rare its class is in a published census,
    whose numbers stand in the code; each example's gradient is clipped after that."""

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        shares = torch.linspace(0.05, 0.15, self.classes, device=x.device)
        return cross_entropy(net(x), y, weight=1 / shares, reduction="sum")


class SeesByLight(Net):
    """Correct for a record: in training the model darkens pixels of an example by how bright the example is, and
    looks at no other example."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        self.head = nn.Linear(prod(shape), classes)

    def features(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return flat / (1 + flat.abs().mean(1, keepdim=True)) if self.training else flat
