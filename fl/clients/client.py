"""A client at work, and what it returns: all that leaves it, and what it will remember.

Lives in a worker. A client returns its new memory instead of storing it, so that memory advances only if the
message was delivered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedaudit.fl.artifact import Party
from fedaudit.fl.clients.time_model import Clock, Workload
from fedaudit.fl.data.columns import Columns
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import AfterEpoch, Constants, Trained, TrainingHooks, bind, train
from fedaudit.fl.training.private import PrivateTraining, RecordDraws, Trainee
from fedaudit.fl.training.private import train as train_privately
from fedaudit.fl.wire.protection import Message


@dataclass
class Client:
    """One client at work: its data, what it received, what it remembers. Lives in a worker."""

    index: int
    round: int
    x: Tensor  # [n, ...] normalised
    y: Tensor  # [n, ...] as the task has them
    classes: int  # groups of labels; 0: none
    message: Message
    memory: Tree
    net: Net  # weights are overwritten by train() and run()
    streams: Streams
    augment: str = "none"
    mean: tuple[float, ...] = (0.0,)  # x is (pixels - mean) / std, channel by channel
    std: tuple[float, ...] = (1.0,)
    columns: Columns | None = None  # of a table, which say what x is
    initial: State = field(default_factory=dict)  # the model everybody knows before round 0
    sends: Kind = Kind.LOCAL_MODEL  # what its trained weights leave as
    private: PrivateTraining | None = None  # set where a protection acts during training
    # set for compromised clients alone: what they make of a training, and the shared model of the round before
    twist: "Callable[[TrainingHooks, Client], TrainingHooks] | None" = None
    before: State = field(default_factory=dict)
    leaves_on: str = "cpu"  # the device on which the server, and so what is trained, waits
    step: int = 0  # of its training, in which a compromised client is; 0 for others
    rank: int = 0  # its place among the compromised, 0 for the lowest number
    clock: Clock | None = None  # its own times, which no message holds; None without a simulated clock
    workload: Workload | None = None  # what training costs on such a device
    # [n] where each example comes from: its row in the training set, and below 0 what is in none. What is drawn
    # for one record alone is keyed by it, so that others' draws do not move with it; None: places in x
    records: Tensor | None = None
    # [m, ...] normalised examples that everybody has, with so many candidates of each client's among them
    read_public: Callable[[int], Tensor] | None = None

    @property
    def counts(self) -> Tensor:
        """[C] n_{k,c}, int64."""
        return torch.bincount(self.y, minlength=self.classes)

    @property
    def start(self) -> State:
        """The global model as received."""
        return self.message[Kind.GLOBAL_MODEL]

    def generator(self, name: str) -> torch.Generator:
        """This client's own stream for this round; nobody else draws from it."""
        return self.streams.torch(name, self.round, self.index)

    def noise(self, name: str) -> NoiseSource:
        """This client's own cryptographic noise of that name for this round."""
        return NoiseSource(self.streams.noise(name, self.round, self.index))

    def take(self, places: Tensor) -> "Client":
        """The client with the examples at these places [m] of its own, which may repeat."""
        records = None if self.records is None else self.records[places.cpu()]
        return replace(self, x=self.x[places], y=self.y[places], records=records)

    def join(self, x: Tensor, y: Tensor) -> "Client":
        """The client with further examples that are in no training set, such as generated ones."""
        records = None if self.records is None else torch.cat([self.records, -1 - torch.arange(len(y))])
        return replace(
            self, x=torch.cat([self.x, x.to(self.x)]), y=torch.cat([self.y, y.to(self.y)]), records=records
        )

    def train(
        self,
        method: TrainingHooks,
        const: Constants,
        start: State | None = None,
        stream: str = "batches",
        after_epoch: AfterEpoch | None = None,
    ) -> Trained:
        """The shared local loop from `start` (default: the global model)."""
        method = method if self.twist is None else self.twist(method, self)
        start = start or self.start
        if self.private is not None:
            if after_epoch is not None:
                raise UserError(
                    "training with differential privacy counts steps, and this method decides after an epoch",
                    hint="leave dp_sgd out, or choose a method such as fedavg",
                )
            trainee = self.prepare_privately(self.private, method, const, start, stream)
            scale = method.config.lr_decay**self.round
            (trained,) = train_privately(method, self.private, self.net, [trainee], scale)
        else:
            trained = train(
                method,
                self.net,
                start,
                self.x,
                self.y,
                const,
                self.generator(stream),
                self.augment,
                method.config.lr_decay**self.round,
                after_epoch=after_epoch,
                leaves_on=self.leaves_on,
            )
        return replace(trained, loss=tap.current().measure(self.round, self.index, trained.loss))

    def prepare_privately(
        self,
        private: PrivateTraining,
        method: TrainingHooks,
        const: Constants,
        start: State | None = None,
        stream: str = "batches",
    ) -> Trainee:
        """What this client brings to a private training; raises UserError where the method cannot train so."""
        if getattr(method.config, "optimiser", "sgd") != "sgd":
            raise UserError(
                f"training with differential privacy is SGD, and method.optimiser is {method.config.optimiser}",
                hint="use optimiser: sgd",
            )
        coins = self.streams.coins(stream, self.round, self.index)
        return Trainee(
            start=start or self.start,
            x=self.x,
            y=self.y,
            const=const,
            draws=RecordDraws(coins, self._hash_records()),
            noise=self.noise(stream),
            line=private.line(self.round, str(Party.client(self.index)), self.sends, EVERYONE),
            augment=self.augment,
        )

    def _hash_records(self) -> Tensor:
        """[n] Raises UserError where a method's own code changed the examples and did not say which."""
        if self.records is None:
            return torch.arange(len(self.y))
        if len(self.records) != len(self.y):
            raise UserError(
                f"a client trains privately on {len(self.y)} examples, and {len(self.records)} are its own",
                hint="choose examples by client.take(), and add others by client.join()",
            )
        return self.records

    def run(self, part: Literal["features", "forward"], state: State) -> Tensor:
        """[n, D] features or [n, C] logits of all examples, in evaluation mode, without gradients."""
        return evaluate(self.net, part, state, self.x)


def evaluate(net: Net, part: str, state: State, x: Tensor, batch: int = 500) -> Tensor:
    """One part of a model on x [n, ...], in evaluation mode, `batch` examples at a time."""
    bind(net, state)
    net.eval()
    with torch.no_grad():
        return torch.cat([getattr(net, part)(b) for b in torch.split(x, batch)]) if len(x) else x.new_zeros(0)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """All that a client's function returns. `stats` feed the simulation's metrics and never the wire."""

    message: Message
    examples: int  # n_k, or how many were really used
    memory: Tree | None = None  # None: nothing to remember
    stats: dict[str, float] = field(default_factory=dict)


def count_of(n: int) -> dict[str, Tensor]:
    """The payload of num_examples."""
    return {"count": torch.tensor(n)}
