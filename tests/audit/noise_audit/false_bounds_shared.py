"""What data_beside_noise.py and the other systems with false bounds share: apart, for each play imports it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Context
from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.clients.selection import Choice
from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree

Labels = NDArray[np.int64]


def average_states(states: Sequence[Mapping[str, Tensor]]) -> State:
    """Compute the plain mean of some models."""
    mean = WeightedMean()
    for state in states:
        mean.add(state, 1.0)
    return mean.value()


def blend(a: Mapping[str, Tensor], b: Mapping[str, Tensor], share: float) -> State:
    """Go from `a` towards `b` by a share of the way."""
    return {k: v + share * (b[k] - v) if v.is_floating_point() else v for k, v in a.items()}


def compute_length(state: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> float:
    """Compute the L2 norm of the change from `base` to `state`."""
    return float(sum(float((v - base[k]).double().pow(2).sum()) for k, v in state.items()) ** 0.5)


class Rounds(RoundMethod):
    """FedAvg whose clients send their models and nothing else: the base of the methods below, itself correct."""

    card = replace(FedAvg.card, title="Rounds", source="read from the documentation", uplink=(Kind.LOCAL_MODEL,))

    @settings
    class Config(LocalConfig):
        pass

    def average_known(self, deliveries: Deliveries, model: State) -> State:
        """Average the arrays that the model has, whatever else was sent."""
        mean = deliveries.average()
        for d in deliveries:
            upload = {k: d.message[Kind.LOCAL_MODEL].get(k, v) for k, v in model.items()}
            mean.add(d.client, upload, 1.0, model)
        return mean.value()


def see_all(choice: Choice) -> Federation:
    """All of a federation: more than a server may go by when it chooses clients."""
    return cast(Federation, choice.federation)


class Watching(Rounds):
    """Rounds whose server keeps the federation at hand; the base of methods that read more than messages."""

    def start(self, federation: Federation) -> Tree:
        self.federation = federation
        return super().start(federation)

    def get_last(self, name: str) -> float | None:
        """Look up a metric of the last round; None before there is one."""
        history = self.federation.history
        return float(history[-1][name]) if history and name in history[-1] else None


Uploads = Sequence[tuple[int, Mapping[str, Tensor], Mapping[str, Tensor]]]  # client, upload and its start


class Listed(Aggregation):
    """An aggregation that lists the uploads of a round and combines them in the end."""

    def __init__(self, context: Context, combine: Callable[[Uploads, Context], tuple[State, Tree]]) -> None:
        super().__init__(context)
        self.combine = combine
        self.uploads: list[tuple[int, Mapping[str, Tensor], Mapping[str, Tensor]]] = []

    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        self.total += weight
        self.uploads.append((client, upload, start))

    def value(self) -> State:
        model, self.state = self.combine(self.uploads, self.context)
        return model


class SaidToSum(Aggregator):
    """Correct by itself: a rule that says it reads no single upload, so that a central protection lets it pass,
    and takes the plain mean; the base of rules that do more."""

    title = "Said to need sums alone"
    reads_single_uploads = False

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        """Combine the uploads of a round; also gives the rule's new state."""
        return average_states([upload for _, upload, _ in uploads]), {}

    def begin(self, context: Context) -> Aggregation:
        return Listed(context, self.combine)


def get_changes(uploads: Uploads) -> list[State]:
    """Compute what each client changed."""
    return [{k: v - start[k] for k, v in upload.items()} for _, upload, start in uploads]


def move(uploads: Uploads, change: Mapping[str, Tensor], factor: float = 1.0) -> State:
    """Add a change to the model that the uploads started from."""
    return {k: v + factor * change[k] for k, v in uploads[0][2].items()}


class AlwaysTheFirst(Availability):
    """Wrong towards clients: everybody is said to answer with probability a fifth, and client 0, which is always
    plugged in, answers in every round; its credit for sampling is not due."""

    title = "Always the first"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if k == 0 or u[k] < 0.2))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.2)

    def describe(self) -> str:
        return "each client answers with probability 0.2"


class EverybodyHasTen(Partition):
    """Wrong towards the server: the first ten examples are given to every client to calm down training, and each
    client's bound counts a record as if no other client had it."""

    title = "Ten for everybody"
    source = "read from the documentation"

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        rest = np.array_split(rng.permutation(np.arange(10, len(labels.y))), clients)
        return [np.sort(np.concatenate([np.arange(10), part])) for part in rest]

    def describe(self) -> str:
        return "a random equal split, and ten examples that every client has"
