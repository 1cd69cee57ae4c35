"""Asynchronous federations: clients train at their own pace, the server steps when enough have answered.

The base of FedAsync and FedBuff. A round is one step of the server. `concurrency` clients train at
a time, each on the model that was current when it was started; the answers arrive in the order of a
simulated clock, and a freed place goes to another available client. In a round each client answers
at most once. The round ends with the `wanted()`-th answer, or when nobody else can answer.

Simulated time: a task of client k takes

    (1 + n_k / mean n) / speed_k * (1 + jitter * Exp(1)),   speed_k log-uniform in 1..speed_spread

(sending and computing cost the same for a client of average size; a spread of 6 is FreezeFL's.)
Delays do not depend on training, so the clock is known before the work: whatever needs training
in a round goes to the workers together.

The simulated clock of an asynchronous round: who is in flight, who answers next, who starts then.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


@dataclass(frozen=True)
class Arrival:
    """An answer: whose, to which version of the model, when, and whether it was lost on the way."""

    client: int
    version: int
    time: float
    lost: bool


class Clock:
    """Runs tasks by their due times; a freed place goes to the next client that waits.

    `flight` maps a client's number, as text, to its {"version", "due"}: it is part of the server's
    state, and checkpoints hold it.
    """

    def __init__(
        self,
        now: float,
        flight: Mapping[str, Tree],
        *,
        version: int,
        places: int,
        waiting: Sequence[int],
        duration: Callable[[int], float],
        loses: Callable[[int, int], bool],
    ) -> None:
        self.now, self.flight = now, dict(flight)
        self._version, self._places, self._waiting = version, places, deque(waiting)
        self._due = [(task["due"], int(k)) for k, task in self.flight.items()]  # a heap
        heapify(self._due)
        self._duration, self._loses = duration, loses
        self._started: list[int] = []
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self.flight) < self._places:
            k = self._waiting.popleft()
            due = self.now + self._duration(k)
            self.flight[str(k)] = {"version": self._version, "due": due}
            heappush(self._due, (due, k))
            self._started.append(k)

    def take_starts(self) -> list[int]:
        """Clients started since the last call, ascending."""
        taken, self._started = sorted(self._started), []
        return taken

    def soonest(self) -> list[tuple[int, int]]:
        """(client, version) of everybody in flight, the first to answer first."""
        order = sorted(self.flight, key=lambda k: (self.flight[k]["due"], int(k)))
        return [(int(k), self.flight[k]["version"]) for k in order]

    def next(self, count: int) -> list[Arrival]:
        """The next arrivals, until `count` of them are heard or nobody is left in flight."""
        arrivals: list[Arrival] = []
        while count > 0 and self.flight:
            self.now, k = heappop(self._due)
            version = self.flight.pop(str(k))["version"]
            arrivals.append(Arrival(k, version, self.now, self._loses(k, version)))
            count -= not arrivals[-1].lost
            self._fill()
        return arrivals


class Asynchronous(RoundMethod):
    """Subclasses write combine(); staleness() and the state's `versions` say what a delivery is."""

    @settings
    class Config(LocalConfig):
        weighting: Literal["uniform"] = Field(
            default="uniform", description="answers are not weighted by numbers of examples"
        )
        concurrency: AtLeastOne = Field(default=10, description="clients that train at a time")
        speed_spread: float = Field(
            default=6.0,
            ge=1,
            allow_inf_nan=False,
            description="speed of the fastest client over that of the slowest; 1 makes all alike, 6 is "
            "FreezeFL's",
        )
        jitter: Amount = Field(
            default=0.2,
            description="how much tasks of one client differ in time: each takes 1 + jitter * Exp(1) times "
            "as long",
        )

    def count_answers_of_step(self) -> int:
        """Answers that make a step."""
        return 1

    def staleness(self, delivery: Delivery, round: int) -> int:
        """Steps of the server between the client's start and its answer."""
        return round - int(delivery.message[Kind.STALENESS]["version"])

    def duration(self, federation: Federation, client: int, round: int) -> float:
        """Simulated time of a task started in this round."""
        config = self.config
        speed = config.speed_spread ** federation.streams.numpy("speed", client).random()
        noise = federation.streams.numpy("delay", round, client).exponential()
        work = 1 + federation.compare_size(client)
        return float(work / speed * (1 + config.jitter * noise))

    # Server ------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        super().open(federation)
        if self.count_answers_of_step() == 1 and not federation.aggregator.of_one:
            raise UserError(
                f"{federation.aggregator.title} compares uploads, and {self.card.title} steps at every one",
                hint="use aggregator: mean or norm_bound with a norm, or fedbuff with a larger buffer",
                key="aggregator",
            )

    def start(self, federation: Federation) -> Tree:
        return super().start(federation) | {"clock": 0.0, "flight": {}, "versions": {}}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: state["model"]}

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        tally, clock = Tally(), self._start_clock(t, state, federation)
        versions = state["versions"] | {str(t): state["model"]}
        before = state | {"versions": versions}
        federation.workers.everywhere("begin", t, {})

        def arriving() -> Iterator[Delivery]:
            missing = self.count_answers_of_step()
            while arrivals := clock.next(missing):
                started = clock.take_starts()
                tally.selected += len(started)
                # The version says which model it is; clients return it with their answer
                sent = self.broadcast(state) | {Kind.STALENESS: {"version": torch.tensor(t)}}
                federation.wire.broadcast(t, sent, started)
                self._train(arrivals, clock.soonest(), versions, federation)
                for a in arrivals:
                    if a.lost:
                        federation.ahead.pop((a.client, a.version), None)
                        tally.lost += 1
                        continue
                    reply = federation.ahead.pop((a.client, a.version))
                    reference = {Kind.GLOBAL_MODEL: versions[str(a.version)]}
                    received = federation.wire.uplink(t, reply.message, a.client, reference)
                    claimed = (received or {}).get(Kind.STALENESS, {"version": a.version})
                    if received is None or str(int(claimed["version"])) not in versions:
                        tally.rejected += 1
                        continue
                    stats = {"staleness": float(t - a.version), "clock": a.time}
                    tally.heard.add(a.client)
                    tally.add(received, reply.examples, reply.stats | stats)
                    missing -= 1
                    yield Delivery(client=a.client, message=received, examples=reply.examples)

        arrivals, averages = arriving(), federation.averages(t, state, self.parameters)
        first, after = next(arrivals, None), before
        if first is not None:
            after = self.combine(before, Deliveries(chain([first], arrivals), averages), t)
            after = after | averages.entries()
        for _ in arrivals:  # the clock is where it should be only after the last arrival
            pass
        tally.note(averages)
        federation.tally = tally
        used = {str(task["version"]) for task in clock.flight.values()}
        kept = {v: model for v, model in versions.items() if v in used}
        return after | {"clock": clock.now, "flight": clock.flight, "versions": kept}

    def _start_clock(self, t: int, state: Tree, federation: Federation) -> Clock:
        """The clock at the start of a round, with whoever is idle and available waiting."""
        flight, places, order = state["flight"], self.config.concurrency, []
        idle = [k for k in range(len(federation.parts)) if str(k) not in flight]
        if idle and len(flight) < places:
            answering = federation.participate(t, idle, choice=True).answering
            order = federation.streams.numpy("dispatch", t).permutation(answering).tolist()
        return Clock(
            state["clock"],
            flight,
            version=t,
            places=places,
            waiting=order,
            duration=lambda k: self.duration(federation, k, t) + federation.attendance.ask(t, k).time,
            loses=lambda k, started: (
                federation.attendance.is_reply_lost(t, k) or not federation.attendance.ask(started, k).heard
            ),
        )

    def _train(
        self, arrivals: list[Arrival], later: list[tuple[int, int]], versions: Tree, federation: Federation
    ) -> None:
        """Work ahead: the replies of these arrivals and, where workers would idle, of the next."""
        ahead = federation.ahead
        needed = [(a.client, a.version) for a in arrivals if not a.lost]
        tasks = [task for task in needed if task not in ahead]
        if tasks:
            others = [task for task in later if task not in ahead]
            tasks += others[: max(0, federation.workers.count - len(tasks))]
        jobs: list[tuple[int, Tree, Message]] = [
            (k, {}, {Kind.GLOBAL_MODEL: versions[str(v)], Kind.STALENESS: {"version": torch.tensor(v)}})
            for k, v in tasks
        ]
        for task, reply in zip(tasks, federation.workers.map("train", jobs), strict=True):
            ahead[task] = reply

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """The client's round is the version it trains, whenever the work is really done."""
        return replace(client, round=int(client.message[Kind.STALENESS]["version"]))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        message = {Kind.LOCAL_MODEL: trained.state, Kind.STALENESS: {"version": torch.tensor(client.round)}}
        return replace(reply, message=message)
