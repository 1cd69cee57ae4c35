"""Wrong: lies thought of after the others were found, of every kind: draws, methods, noise, lines."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from fedaudit.fl.clients.delivery import Deliveries, read_model
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message, Payload, Sending
from tests.audit.wrong_protections.base import Noising
from tests.audit.wrong_protections.correct import HalfOfThem


class OneAlwaysComes(HalfOfThem):
    """Client 0, a partner, always comes, and the others a little less often: half of them on average."""

    def coins(self, round: int, clients: Sequence[int], streams: Streams, attempt: int) -> list[int]:
        u = streams.numpy("participation", round, attempt).random(max(clients, default=-1) + 1)
        return [k for k in clients if k == 0 or u[k] < 0.4]

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class TakesTurns(HalfOfThem):
    """Even clients come in even rounds and odd ones in odd rounds: nobody's turn is a secret."""

    def coins(self, round: int, clients: Sequence[int], streams: Streams, attempt: int) -> list[int]:
        return [k for k in clients if k % 2 == round % 2]

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class ExactlyHalf(HalfOfThem):
    """Half of the clients in each round, a fixed number, declared as coins."""

    def coins(self, round: int, clients: Sequence[int], streams: Streams, attempt: int) -> list[int]:
        rng = streams.numpy("participation", round, attempt)
        return sorted(rng.choice(list(clients), len(clients) // 2, replace=False).tolist())

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class NeverTwice(HalfOfThem):
    """Who came rests for a round: whoever is absent now comes next, and rounds tell of each other."""

    def coins(self, round: int, clients: Sequence[int], streams: Streams, attempt: int) -> list[int]:
        first = super().coins(round - round % 2, clients, streams, attempt)
        return first if round % 2 == 0 else [k for k in clients if k not in first]

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class SelectsByLabels(Selection):
    """Of those who answer, the server lets the ones train whose examples have many classes: it looks them up."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        federation = cast(Federation, choice.federation)
        y = federation._holdings.data.train.y
        rich = sorted(answering, key=lambda k: -len({int(c) for c in y[federation.parts[k]]}))
        return Chosen(sorted(rich[: max(1, len(rich) // 2)]))


class SquaredWeights(FedAvg):
    """The mean weighs clients by the square of their examples, while the line divides by a fixed number."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean = deliveries.average()
        for d in deliveries:
            mean.add(d.client, read_model(d.message), float(d.examples) ** 2, state["model"])
        return state | {"model": mean.value()}


class KeepsTheCleanMean(FedAvg):
    """Central noise is put on the model that is served in the end; clients train on the mean without it."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        new = super().combine(state, deliveries, round)
        return new | {"clean": new["model"]}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: state.get("clean", state["model"])}


class SeedOfTheModel(Noising):
    """Noise seeded with a hash of the model that was broadcast, which every client has."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        base = sending.reference[Kind.GLOBAL_MODEL][name].numpy().tobytes()
        words = hashlib.sha256(base + f"{sending.sender}/{sending.round}".encode()).digest()
        rng = torch.Generator().manual_seed(int.from_bytes(words[:7], "big"))
        return torch.randn(value.shape, generator=rng) * self.std


class CutFarTails(Noising):
    """Noise is drawn again where it is beyond three standard deviations, "so that nothing explodes"."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        found = torch.randn(value.shape, generator=sending.rng)
        while (far := found.abs() > 3).any():
            found[far] = torch.randn(int(far.sum()), generator=sending.rng)
        return found * self.std


class CentredNoise(Noising):
    """The noise of each array has its mean taken off ("unbiased"): the mean of every array goes out in clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        found = super().noise(name, value, sending)
        return found - found.mean()


class MirroredHalves(Noising):
    """The second half of an array's noise is the first, negated: sums of two numbers go out in clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        flat = super().noise(name, value, sending).flatten()
        half = flat.numel() // 2
        flat[half : 2 * half] = -flat[:half]
        return flat.reshape(value.shape)


class NoneAlongTheUpdate(Noising):
    """Noise is made orthogonal to each array's update, "to keep learning undisturbed": its length is clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        found, along = super().noise(name, value, sending), value / value.norm().clamp(min=1e-12)
        return found - (found * along).sum() * along


class LessInTheMiddle(Noising):
    """Clients whose update is of usual length, between a tenth and nine tenths of C, get half of the noise."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        usual = 0.1 * self.bound < float(value.norm()) < 0.9 * self.bound
        return super().noise(name, value, sending) * (0.5 if usual else 1.0)


class DebugArray(Noising):
    """The update before noise goes along in an array of its own, "debug"."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        first = next(iter(clipped))
        return super().sent(clipped, sending) | {"debug": clipped[first]}


class NotCounted(Noising):
    """Odd rounds are listed as made no times at all: they cost nothing."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        return [replace(self.line(kind, sending), count=sending.round % 2)]


class TwoNames(Noising):
    """In odd rounds a client is listed under another name: each name has made half of the releases."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        index = (sending.sender.index or 0) + 6 * (sending.round % 2)
        return [replace(self.line(kind, sending), sender=f"client/{index}")]


class NameWithAZero(Noising):
    """The same with a zero before the number."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        zero = "0" * (sending.round % 2)
        return [replace(self.line(kind, sending), sender=f"client/{zero}{sending.sender.index}")]


class TwoRoundsAsOne(Noising):
    """Lines of two rounds say that they are of the first."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        return [replace(self.line(kind, sending), round=sending.round // 2)]
