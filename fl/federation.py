"""A federation: the clients and their data, who answers when, the wire, the workers, the record.

A method runs over one of these. Everything random comes from named streams, so two methods over
equal federations meet the same clients with the same batches.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregator, Averages, RowRule, mean
from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.attendance import Attendance, Participants
from fedaudit.fl.clients.failures import FailureConfig
from fedaudit.fl.clients.task_clock import TaskClock
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.columns import Stats, pool_stats
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.participation import UNKNOWN, Availability
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import DELTAS, TRAINED, Kind
from fedaudit.fl.model import State
from fedaudit.fl.recording.checkpoint import Checkpoints, Saved
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.threats.compromise import Compromise, Tampering
from fedaudit.fl.threats.rehearsal import Job, Rehearsal, Server
from fedaudit.fl.training.evaluation import Evaluator
from fedaudit.fl.wire.protection import Message, Payload
from fedaudit.fl.wire.watched import MeasuredValues, Rows
from fedaudit.fl.wire.wire import Wire


@dataclass(frozen=True)
class Holdings:
    """What workers need to know of the federation: the data and who holds which examples."""

    data: Data
    parts: Sequence[Index]
    streams: Streams
    spare: Index = field(default_factory=lambda: np.zeros(0, np.int64))  # the server's own examples
    time_model: TimeModel | None = None  # the simulated clock

    def compare_size(self, client: int) -> float:
        """A client's examples over the mean of all, for how long it simulates to work."""
        return len(self.parts[client]) / max(1.0, self._mean_size)

    @cached_property
    def _mean_size(self) -> float:
        return float(np.mean([len(part) for part in self.parts]))


class PublicData(NamedTuple):
    """What a server knows of the data before any message arrives."""

    shape: tuple[int, ...]  # of one example
    task: Task
    classes: int  # groups of labels, of which classification has one a class; 0: none
    spare: Index  # rows of examples that are the server's own
    spare_labels: Index  # [n, ...]


@dataclass
class Tally:
    """What happened in one round, for the metrics."""

    selected: int = 0
    lost: int = 0
    rejected: int = 0
    delivered: int = 0
    examples: int = 0
    stats: MeasuredValues = field(default_factory=MeasuredValues)  # sums, for the metrics
    heard: set[int] = field(default_factory=set)  # clients whose work arrived
    times: dict[int, float] = field(default_factory=dict)  # simulated, of the clients heard
    waited: float = 0.0  # simulated, for those who were not
    notes: dict[str, Any] = field(default_factory=dict)  # more for the round's line of the metrics
    _sum: Tensor | None = None  # of the delivered models, flat, double precision
    _squares: Tensor = field(default_factory=partial(torch.zeros, (), dtype=torch.float64))

    def measure(self, stats: Mapping[str, float]) -> None:
        """Add what one client's training measured."""
        for name, value in stats.items():
            self.stats[name] = dict.get(self.stats, name, 0.0) + value

    def add(self, message: Message, examples: int, stats: Mapping[str, float]) -> None:
        self.delivered += 1
        self.examples += examples
        self.measure(stats)
        model = next((message[k] for k in (*TRAINED, *DELTAS) if message.get(k)), None)
        if model:
            flat = torch.cat([v.flatten() for v in model.values() if v.is_floating_point()]).double()
            if self._sum is None or self._sum.shape != flat.shape:
                self._sum = torch.zeros_like(flat)
            self._sum += flat
            self._squares = self._squares.to(flat.device) + flat @ flat

    def note(self, averages: Averages, more: Sequence[tuple[str, Any]] = ()) -> None:
        """Whom the aggregator kept, where it does not take everybody, and more of the round."""
        self.notes |= dict(more)
        if kept := averages.get_client_weights():
            self.notes["kept"] = {name: {str(k): w for k, w in of.items()} for name, of in kept.items()}
        if short := averages.short():
            self.notes["too_few"] = short

    def diversity(self) -> float:
        """Weight diversity (ReBaFL): mean squared distance of the delivered models to their mean."""
        if self._sum is None or self.delivered < 2:
            return 0.0
        mean = self._sum / self.delivered
        return max(0.0, float(self._squares / self.delivered - mean @ mean))


@dataclass
class Federation:
    """One run. `metrics` and `checkpoints` may be None: nothing is then kept on disk.

    `attendance` says who takes part and is heard, `clock` how long work takes, and `wire` carries all messages.
    A method reads `public` and what clients sent. `parts` and `read_examples` are the clients' data: the ledger
    lists that somebody looked at them.
    """

    holdings: InitVar[Holdings]
    initial: State
    availability: InitVar[Availability]
    wire: Wire
    workers: Workers
    metrics: Log | None = None
    checkpoints: Checkpoints | None = None
    empty_round: InitVar[Literal["redraw", "skip"]] = "redraw"
    failures: InitVar[FailureConfig | None] = None
    aggregator: Aggregator = field(
        default_factory=mean
    )  # what a method's server averages models and prototypes by
    compromise: Compromise = field(default_factory=Compromise)
    evaluate_every: int = 1
    progress: Callable[[str, int, int], None] = lambda *_: None
    tally: Tally = field(default_factory=Tally)
    history: list[dict[str, Any]] = field(default_factory=list)  # of this process, for callers
    _measured: MeasuredValues = field(default_factory=MeasuredValues)  # of the last round that ended
    # Work done before it was needed, by client and version; it could be done again, so checkpoints leave it out
    ahead: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(
        self,
        holdings: Holdings,
        availability: Availability,
        empty_round: Literal["redraw", "skip"],
        failures: FailureConfig | None,
    ) -> None:
        self._holdings, data = holdings, holdings.data
        labels = data.train.y[holdings.spare]
        self.public = PublicData(data.shape, data.task, len(data.groups), holdings.spare, labels)
        self.parts = Rows(holdings.parts)
        self.attendance = Attendance(
            availability,
            holdings.streams,
            len(holdings.parts),
            self.members,
            empty_round=empty_round,
            failures=failures or FailureConfig(),
        )
        self.clock = TaskClock(holdings.time_model, self.attendance, self.compromise.late)
        self._evaluator = Evaluator(self.workers, data, holdings.parts)
        self.wire.chain.compromised = self.compromise.acting
        self.wire.classes = len(data.classes) if data.task.has_classes else 0
        if self.compromise.server is not None:
            self.wire.tamper = self.compromise.server.tamper
        if isinstance(self.aggregator, RowRule):
            self.aggregator.check_clients(len(self.members))
        if self.aggregator.needs_root and not len(self._holdings.spare):
            raise UserError(
                f"{self.aggregator.title} trains on examples of the server's own, and it has none",
                hint="set federation.holdout.server, for instance to 0.02",
                key="federation.holdout.server",
            )
        meant = [p for p in self.wire.chain.protections if p.central or p.hides_single_uploads()]
        if meant and self.aggregator.reads_single_uploads:
            raise UserError(
                f"aggregator {self.aggregator.title} reads each client's upload, and {meant[0].title} is for "
                "sums and means of them",
                hint="use aggregator: mean, or leave the protection out",
            )

    @property
    def members(self) -> list[int]:
        """Clients with data; the others answer that they have none."""
        return [k for k, part in enumerate(self._holdings.parts) if len(part)]

    @property
    def streams(self) -> Streams:
        return self._holdings.streams

    def begin_with(self, model: State) -> None:
        """Have everybody know this model before round 0."""
        self.initial = model
        self.workers.everywhere("install", model)

    def keep(self, message: Message) -> None:
        """Have workers hold what every client was sent before the rounds; after a restart they are new."""
        if message:
            self.workers.everywhere("keep", message)

    def averages(
        self,
        round: int,
        state: Tree,
        parameters: Collection[str],
        head: Collection[str] = (),
        root: Payload | None = None,
    ) -> Averages:
        """The aggregations of one round, with the rule's state out of the server's."""
        before = state.get("aggregator", {})
        return Averages(self.aggregator, round, self.streams, before, parameters, root=root or {}, head=head)

    def tampering(
        self, averages: Averages, state: Tree, message: Message, server: Server, job: Callable[[int], Job]
    ) -> Tampering:
        """What the adversary will do to a round's replies; the workers hear what it remembers."""
        before, adversary = state.get("adversary", {}), self.compromise.adversary
        if adversary is not None and adversary.remembers and self.compromise.clients:
            self.workers.everywhere("recall", before.get("model", {}))
        return Tampering(
            self.compromise,
            Rehearsal(
                workers=self.workers,
                averages=averages,
                state=state,
                job=job,
                server=server,
                broadcast=message,
                protections=self.wire.chain,
            ),
            before,
            lambda k: not self.attendance.is_heard(averages.round, k),
        )

    def restore(self) -> Saved | None:
        """Where an interrupted run left off, with the logs cut back to there. One that begins sends its scale."""
        saved = self.checkpoints.restore() if self.checkpoints else None
        if saved is None and self._holdings.data.is_scaled_by_clients:
            self._share_scale(self._holdings.data)
        return saved

    def _share_scale(self, data: Data) -> None:
        """Each client says what its columns are like, and all are sent what the server makes of it."""
        columns, told = data.columns, list[Stats]()
        assert columns is not None
        self.wire.records.mark_milestone(0)
        for k in self.members:
            stats = columns.describe(data.train.x[self._holdings.parts[k]])
            sent = {Kind.FEATURE_STATS: {name: torch.from_numpy(values) for name, values in stats.items()}}
            if heard := self.wire.uplink(0, sent, k, {}):
                told.append({name: values.numpy() for name, values in heard[Kind.FEATURE_STATS].items()})
        pooled = {name: torch.from_numpy(values) for name, values in pool_stats(told).items()}
        self.wire.broadcast(0, {Kind.FEATURE_STATS: pooled}, self.members)

    def participate(self, round: int, candidates: Sequence[int], choice: bool = False) -> Participants:
        """Draw the round's clients. Clients without data are selected and answer "no data" .

        The wire hears who was drawn, and by which law. A `choice` that the method makes among them, or
        candidates that are not everybody, make it another law than availability's own.
        """
        participants = self.attendance.draw(round, candidates)
        whole = not choice and list(candidates) == list(range(len(self.parts)))
        law = self.attendance.get_law if whole else lambda _: UNKNOWN
        self.wire.accounts.note_draw(round, participants.answering, law)
        return participants

    def read_examples(self) -> Arrays:
        """The training set, of which `parts` are the clients' rows."""
        self.parts.read = True
        return self._holdings.data.train

    def compare_size(self, client: int) -> float:
        """As `Holdings` says."""
        return self._holdings.compare_size(client)

    def end_round(
        self,
        round: int,
        rounds: int,
        model: State,
        state: Tree,
        memory: dict[int, Tree],
        own: Callable[[], Iterable[tuple[int, State]]] = tuple,
    ) -> None:
        """Evaluate, write the round's metrics, and save where we are.

        Where there is no global model (`model` is empty), the clients' mean scores stand for it.
        """
        self.wire.check_dealt(round)
        tally, sent = self.tally, self.wire.end_round(round)
        record: dict[str, Any] = {
            "round": round,
            "selected": tally.selected,
            "delivered": tally.delivered,
            "lost": tally.lost,
            "rejected": tally.rejected,
            "redraws": self.attendance.redraws,
            "samples_used": tally.examples,
            "bytes_up": sent[Channel.UPLINK],
            "bytes_down": sent[Channel.DOWNLINK],
            "bytes_relay": sent[Channel.RELAY],
            "weight_diversity": tally.diversity(),
        }
        self._check_reads(round)
        record |= {k: v / max(1, tally.delivered) for k, v in dict.items(tally.stats)} | tally.notes
        record |= self.clock.describe_round(tally.times, tally.waited)
        if self.compromise.clients:
            record["compromised"] = sorted(self.compromise.acting(round) & tally.heard)
        last = round == rounds - 1
        if last or (round + 1) % self.evaluate_every == 0:
            record |= self._evaluator.evaluate(model, keep_answers=last) if model else {}
            clients = self._evaluator.evaluate_clients(own())
            record |= clients
            if not model:
                record |= {k.removeprefix("client_"): v for k, v in clients.items()}
        self.history.append(record)
        if self.metrics is not None:
            self.metrics.add(record)
        if self.checkpoints and not last and (round + 1) % self.evaluate_every == 0:
            self.checkpoints.save(Saved(round + 1, state, memory))
        self.progress("simulate", round + 1, rounds)

    def _check_reads(self, round: int) -> None:
        """Whether the last round's statistics, or clients' rows, were read by the time that this one ends."""
        if self._measured.read:
            self.wire.accounts.enter_clear(
                round, "training_statistics", "the server read what clients' training measured"
            )
        if self.parts.read:
            self.wire.accounts.enter_clear(round, "client_data", "the server looked at the clients' examples")
        self._measured, self.parts.read = self.tally.stats, False

    def finish(self, rounds: int, card: Any, model: State, state: Tree, memory: dict[int, Tree]) -> State:
        """Release the final model and close the record; once, however often the run is continued."""
        done = self.checkpoints is not None and self.checkpoints.finished
        if not done:
            self._check_reads(rounds)
            self.wire.check_dealt(rounds)
            if Kind.GLOBAL_MODEL in card.release:
                self.wire.records.mark_milestone(rounds)  # a release has the number after the last round
                self.wire.release(rounds, {Kind.GLOBAL_MODEL: model})
                self.wire.end_round(rounds)
            if self.checkpoints:
                self.checkpoints.save(Saved(rounds, state, memory), finished=True)
        return model
