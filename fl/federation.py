"""A federation: the clients and their data, who answers when, the wire, the workers, the record.

A method runs over one of these. Everything random comes from named streams, so two methods over
equal federations meet the same clients with the same batches.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Aggregator, Averages, RowRule, mean
from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.clients.failures import FailureConfig, RandomFaults, Turn, turn
from fedaudit.fl.clients.time_model import TimeModel, Workload, round_length
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, drawn
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import State
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.checkpoint import Checkpoints, Saved
from fedaudit.fl.recording.sizes import message_bytes
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.threats.compromise import Compromise, Tampering
from fedaudit.fl.wire.protection import Message, Payload
from fedaudit.fl.wire.watched import Measured, Rows
from fedaudit.fl.wire.wire import Wire

_CHUNK = 1000  # test examples scored at a time; fixed, so that sums do not depend on the workers


@dataclass(frozen=True)
class Holdings:
    """What workers need to know of the federation: the data and who holds which examples."""

    data: Data
    parts: Sequence[Index]
    streams: Streams
    spare: Index = field(default_factory=lambda: np.zeros(0, np.int64))  # the server's own examples
    time_model: TimeModel | None = None  # the simulated clock


class PublicData(NamedTuple):
    """What a server knows of the data before any message arrives."""

    shape: tuple[int, ...]  # of one example
    classes: int
    spare: Index  # rows of examples that are the server's own
    spare_labels: Index


@dataclass
class Tally:
    """What happened in one round, for the metrics."""

    selected: int = 0
    lost: int = 0
    rejected: int = 0
    delivered: int = 0
    examples: int = 0
    stats: Measured = field(default_factory=Measured)  # sums, for the metrics
    heard: set[int] = field(default_factory=set)  # clients whose work arrived
    times: dict[int, float] = field(default_factory=dict)  # simulated, of the clients heard
    waited: float = 0.0  # simulated, for those who were not
    notes: dict[str, Any] = field(default_factory=dict)  # more for the round's line of the metrics
    _sum: Tensor | None = None  # of the delivered models, flat, double precision
    _squares: float = 0.0

    def measure(self, stats: Mapping[str, float]) -> None:
        """Add what one client's training measured."""
        for name, value in stats.items():
            self.stats[name] = dict.get(self.stats, name, 0.0) + value

    def add(self, message: Message, examples: int, stats: Mapping[str, float]) -> None:
        self.delivered += 1
        self.examples += examples
        self.measure(stats)
        model = message.get(Kind.LOCAL_MODEL) or message.get(Kind.MODEL_DELTA)
        if model:
            flat = torch.cat([v.flatten().double() for v in model.values() if v.is_floating_point()])
            same = self._sum is not None and self._sum.shape == flat.shape
            self._sum = self._sum + flat if same and self._sum is not None else flat
            self._squares += float(flat @ flat)

    def note(self, averages: Averages, more: Sequence[tuple[str, float]] = ()) -> None:
        """Whom the aggregator kept, where it does not take everybody, and more of the round."""
        self.notes |= dict(more)
        if kept := averages.kept():
            self.notes["kept"] = {name: {str(k): w for k, w in of.items()} for name, of in kept.items()}
        if short := averages.short():
            self.notes["too_few"] = short

    def diversity(self) -> float:
        """Weight diversity (ReBaFL): mean squared distance of the delivered models to their mean."""
        if self._sum is None or self.delivered < 2:
            return 0.0
        mean = self._sum / self.delivered
        return max(0.0, self._squares / self.delivered - float(mean @ mean))


class Participants(NamedTuple):
    selected: tuple[int, ...]
    answering: tuple[int, ...]  # those with data that will train


@dataclass
class Federation:
    """One run. `metrics` and `checkpoints` may be None: nothing is then kept on disk.

    A method reads `public` and what clients sent. `parts` and `read_examples` are the clients' data: the ledger
    lists that somebody looked at them.
    """

    holdings: InitVar[Holdings]
    initial: State
    availability: Availability
    wire: Wire
    workers: Workers
    metrics: Log | None = None
    checkpoints: Checkpoints | None = None
    empty_round: Literal["redraw", "skip"] = "redraw"
    reply_loss: float = 0.0  # probability that a trained client's reply is lost
    failures: FailureConfig = field(default_factory=FailureConfig)
    aggregator: Aggregator = field(default_factory=mean)  # what a method's server averages models by
    prototype_aggregator: Aggregator = field(default_factory=mean)  # and prototypes, class by class
    compromise: Compromise = field(default_factory=Compromise)
    evaluate_every: int = 1
    checkpoint_every: int = 1
    progress: Callable[[str, int, int], None] = lambda *_: None
    tally: Tally = field(default_factory=Tally)
    history: list[dict[str, Any]] = field(default_factory=list)  # of this process, for callers
    redraws: int = 0
    _measured: Measured = field(default_factory=Measured)  # of the last round that ended
    # Work done before it was needed, by client and version; it could be done again, so checkpoints leave it out
    ahead: dict[tuple[int, int], Any] = field(default_factory=dict)

    def __post_init__(self, holdings: Holdings) -> None:
        self._holdings, data = holdings, holdings.data
        labels = data.train.y[holdings.spare]
        self.public = PublicData(data.shape, len(data.classes), holdings.spare, labels)
        self.parts = Rows(holdings.parts)
        self.wire.chain.compromised = self.compromise.acting
        if self.compromise.server is not None:
            self.wire.tamper = self.compromise.server.tamper
        if not self.prototype_aggregator.by_class:
            raise UserError(
                f"{self.prototype_aggregator.title} is no rule for prototypes, of which a class has few",
                hint="use prototype_aggregator: mean, median, trimmed_mean or capped_mean",
                key="prototype_aggregator",
            )
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

    @property
    def time_model(self) -> TimeModel | None:
        return self._holdings.time_model

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
        return Averages(
            self.aggregator,
            round,
            self.streams,
            before,
            parameters,
            prototypes=self.prototype_aggregator,
            root=root or {},
            head=head,
        )

    def tampering(
        self, averages: Averages, state: Tree, message: Message, weight: Callable[[Reply], float]
    ) -> Tampering:
        """What the adversary will do to a round's replies; the workers hear what it remembers."""
        before, adversary = state.get("adversary", {}), self.compromise.adversary
        if adversary is not None and adversary.remembers and self.compromise.clients:
            self.workers.everywhere("recall", before.get("model", {}))
        return Tampering(
            self.compromise,
            averages,
            message.get(Kind.GLOBAL_MODEL, {}),
            before,
            lambda k: not self.hears(averages.round, k),
            weight,
        )

    def restore(self) -> Saved | None:
        """Where an interrupted run left off, with the logs cut back to there."""
        return self.checkpoints.restore() if self.checkpoints else None

    def participate(self, round: int, candidates: Sequence[int], choice: bool = False) -> Participants:
        """Draw the round's clients. Clients without data are selected and answer "no data" .

        The wire hears who was drawn, and by which law. A `choice` that the method makes among them, or
        candidates that are not everybody, make it another law than availability's own.
        """
        found = self._draw_participants(round, candidates)
        found = found._replace(answering=tap.current().draw(round, found.answering))
        whole = not choice and list(candidates) == list(range(len(self.parts)))
        self.wire.accounts.note_draw(round, found.answering, self.law if whole else lambda _: UNKNOWN)
        return found

    def law(self, client: int | None) -> Drawn:
        """How a client comes to take part where the method leaves it to availability."""
        without = len(self.parts) - len(self.members)
        return drawn(self.availability, len(self.parts), self.empty_round, client, without)

    def _draw_participants(self, round: int, candidates: Sequence[int]) -> Participants:
        self.redraws = 0
        while True:
            found = self.availability.draw(round, candidates, self.streams, self.redraws)
            answering = tuple(k for k in found.answering if len(self._holdings.parts[k]))
            # The papers' code draws again until somebody answers. 1000 draws without anybody
            # mean that nobody ever will (p = 0, or no client has data).
            if answering or self.empty_round == "skip" or self.redraws >= 1000:
                return Participants(found.selected, answering)
            self.redraws += 1

    def loses_reply(self, round: int, client: int) -> bool:
        if not self.reply_loss:
            return False
        return bool(self.streams.numpy("reply_loss", round, client).random() < self.reply_loss)

    def turn(self, round: int, client: int) -> Turn:
        """How often a client is asked in a round, by a server that asks all at once, and what comes of it."""
        if not self.failures.any:
            return Turn()
        return turn(client, self.failures, RandomFaults(self.failures, self.streams, round))

    def hears(self, round: int, client: int) -> bool:
        """Whether a client that was asked with all others is heard in the end."""
        return self.turn(round, client).heard and not self.loses_reply(round, client)

    def fail(self, round: int, answering: Iterable[int], tally: Tally) -> None:
        """Note who fails in a round, and how long the server waits for those it does not hear."""
        if not self.failures.any:
            return
        turns = [self.turn(round, k) for k in answering]
        tally.waited = max((t.time for t in turns if not t.heard), default=0.0)
        events = sorted((dict(e) for t in turns for e in t.events), key=lambda e: (e["time"], e["client"]))
        tally.notes |= {"requests": sum(t.requests for t in turns), "events": events}

    def task_time(
        self,
        round: int,
        client: int,
        down: Message,
        up: Message,
        examples: int,
        cost: Callable[[Workload], float],
    ) -> float:
        """Simulated time of one client's download, training, upload and delays; without a clock, of delays alone.

        `cost` says how many seconds of the profile training on an example takes.
        """
        delay = self.turn(round, client).time + self.compromise.late(round, client)
        if self.time_model is None:
            return delay
        taken = self.time_model.task_time(
            client,
            bytes_down=message_bytes(down),
            bytes_up=message_bytes(up),
            examples=examples,
            cost=cost(self.time_model.workload),
        )
        return tap.current().measure(round, client, self.time_model.delayed(taken, round, client) + delay)

    def read_examples(self) -> Arrays:
        """The training set, of which `parts` are the clients' rows."""
        self.parts.read = True
        return self._holdings.data.train

    def compare_size(self, client: int) -> float:
        """A client's examples over the mean of all, for how long it simulates to work."""
        sizes = [len(part) for part in self._holdings.parts]
        return sizes[client] / max(1.0, float(np.mean(sizes)))

    def evaluate(self, model: State, *, keep_answers: bool = False) -> dict[str, Any]:
        """Accuracy (fraction) and loss on the whole test set, by class, and a backdoor's success as `asr`.

        With `keep_answers` also `correct`, a bit for each test example in their order, as hexadecimal digits: two
        runs on one test set are compared example by example.
        """
        self.workers.everywhere("serve", model)
        total = np.arange(len(self._holdings.data.test))
        chunks = [total[i : i + _CHUNK] for i in range(0, len(total), _CHUNK)]
        scores = list(self.workers.map("score", chunks))
        correct, seen = (torch.stack([s[i] for s in scores]).sum(0) for i in (0, 1))
        turned, of = (sum(s[3][i] for s in scores) for i in (0, 1))
        answers = np.packbits(torch.cat([s[4] for s in scores]).numpy()).tobytes().hex() if keep_answers else ""
        return (
            ({"asr": turned / of} if of else {})
            | ({"correct": answers} if answers else {})
            | {
                "accuracy": float(correct.sum() / seen.sum()),
                "test_loss": sum(s[2] for s in scores) / len(total),
                "class_accuracy": (correct.double() / seen.clamp(min=1)).tolist(),
            }
        )

    def evaluate_own(self, models: Iterable[tuple[int, State]]) -> dict[str, Any]:
        """Mean scores of clients' own models, as `client_*`, on the whole test set.

        `personal_accuracy` weighs each model's accuracy by class with its owner's label
        distribution: what the owner can expect on data like its own.
        """
        scores, personal, y = [], [], self._holdings.data.train.y
        for k, model in models:
            scores.append(self.evaluate(model))
            mix = np.bincount(y[self._holdings.parts[k]], minlength=len(self._holdings.data.classes))
            personal.append(float(mix @ np.array(scores[-1]["class_accuracy"]) / mix.sum()))
        if not scores:
            return {}
        mean = {
            f"client_{name}": np.mean([s[name] for s in scores], 0).tolist()
            for name in ("accuracy", "test_loss", "class_accuracy")
        }
        return mean | {"personal_accuracy": float(np.mean(personal))}

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
        tally, sent = self.tally, self.wire.end_round(round)
        record: dict[str, Any] = {
            "round": round,
            "selected": tally.selected,
            "delivered": tally.delivered,
            "lost": tally.lost,
            "rejected": tally.rejected,
            "redraws": self.redraws,
            "samples_used": tally.examples,
            "bytes_up": sent[Channel.UPLINK],
            "bytes_down": sent[Channel.DOWNLINK],
            "bytes_relay": sent[Channel.RELAY],
            "weight_diversity": tally.diversity(),
        }
        self._check_reads(round)
        record |= {k: v / max(1, tally.delivered) for k, v in dict.items(tally.stats)} | tally.notes
        if self.time_model is not None or self.failures.any:
            record["round_length"] = max(round_length(tally.times), tally.waited)
        if self.time_model is not None:
            record |= self.time_model.shares(tally.times)
        if self.compromise.clients:
            record["compromised"] = sorted(self.compromise.acting(round) & tally.heard)
        last = round == rounds - 1
        if last or (round + 1) % self.evaluate_every == 0:
            record |= self.evaluate(model, keep_answers=last) if model else {}
            clients = self.evaluate_own(own())
            record |= clients
            if not model:
                record |= {k.removeprefix("client_"): v for k, v in clients.items()}
        self.history.append(record)
        if self.metrics is not None:
            self.metrics.add(record)
        if self.checkpoints and not last and (round + 1) % self.checkpoint_every == 0:
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
            if Kind.GLOBAL_MODEL in card.release:
                self.wire.records.mark_milestone(rounds)  # a release has the number after the last round
                self.wire.release(rounds, {Kind.GLOBAL_MODEL: model})
                self.wire.end_round(rounds)
            if self.checkpoints:
                self.checkpoints.save(Saved(rounds, state, memory), finished=True)
        return model
