"""Deliveries: what arrives at the server in a round, and the rule by which it averages models."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from fedaudit.fl.aggregation.aggregator import Aggregation, Averages
from fedaudit.fl.kinds import TRAINED, Kind
from fedaudit.fl.model import State
from fedaudit.fl.wire.protection import Message, Payload


def read_model(message: Message) -> Payload:
    """All weights that a client trained, as it sent them; empty where it sent none."""
    return next((message[kind] for kind in TRAINED if kind in message), {})


def read_sample_count(message: Message, unsent: int) -> int:
    """Number of examples that the server counts: as the message says, which a client may have changed.

    It is `unsent` where the message has none.
    """
    number = message.get(Kind.NUM_EXAMPLES)
    return unsent if number is None else int(number["count"])


def find_reference(received: Message, sent: Message) -> Message:
    """What a client's update is relative to, for protections; its server knows it too.

    It is what the client received: of several models in one payload the one that it says it chose.
    """
    models = received.get(Kind.GLOBAL_MODEL, {})
    if Kind.CLUSTER_ID not in sent or not take_model(models, 0):
        return received
    return {Kind.GLOBAL_MODEL: take_model(models, int(sent[Kind.CLUSTER_ID]["cluster"]))}


def take_model(models: Payload, j: int) -> State:
    """The j-th of several models in one payload, whose names begin with its number."""
    start = f"{j}/"
    return {k.removeprefix(start): v for k, v in models.items() if k.startswith(start)}


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A reply as the server received it, after the wire."""

    client: int
    message: Message
    examples: int
    time: float = 0.0  # when it came, by the simulated clock; 0 without one

    def weight(self, weighting: str) -> float:
        return float(self.examples) if weighting == "samples" else 1.0


class Deliveries(Iterator[Delivery]):
    """One delivery at a time; average() begins a model that the federation's aggregator makes of them.

    `is_summed` says that the server can know of the sums of uploads alone.
    """

    def __init__(self, arriving: Iterable[Delivery], averages: Averages, is_summed: bool = False) -> None:
        self._arriving, self._averages, self.is_summed = iter(arriving), averages, is_summed

    def __next__(self) -> Delivery:
        return next(self._arriving)

    def average(self, name: str = "model") -> Aggregation:
        """`name` tells several models of one method apart."""
        return self._averages.begin(name)

    def average_models(self, start: State, weighting: str) -> State:
        """The models that clients trained from `start`, by the federation's aggregator."""
        mean = self.average()
        for delivery in self:
            mean.add(delivery.client, read_model(delivery.message), delivery.weight(weighting), start)
        return mean.value()

    def prototype(self, label: int) -> Aggregation:
        """The prototype of a class, by the federation's rule for prototypes."""
        return self._averages.prototype(label)

    def noting(self, note: Callable[[Delivery], None]) -> "Deliveries":
        """The same, with a look at each delivery as it passes."""

        def passing() -> Iterator[Delivery]:
            for delivery in self._arriving:
                note(delivery)
                yield delivery

        return Deliveries(passing(), self._averages, self.is_summed)
