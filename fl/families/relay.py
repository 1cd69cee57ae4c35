"""A relay on the simulated clock: one mediator's round, with clients that are late, silent or gone.

GANDALF, sec. 3.4 and Algorithm 2; the paper leaves open what stands here as a setting. A mediator
passes a model along its clients. With tolerance

    next      of the clients that may still work, the one with the fewest completed tasks, then the
              lowest number; between two requests to a client lie `gap` requests to others, if any can
    late      no result after patience * timeout: the mediator goes on without; a late result is ignored
    silent    no heartbeat for `heartbeat`: the client counts as down until the round ends
    rollback  the last client that finished hands its stored weights on; if it is down the one before,
              and so on, its work being lost; if nobody is left, the round starts from its first model

and without it the order is fixed and every failure costs the whole timeout. A task is `requests`
tries at most. Delays do not depend on training, so a round is planned before anything is trained.
`dropout` is the share of requests whose delay, drawn from an exponential, exceeds the timeout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from fl.ranges import Amount, AtLeastOne, AtLeastZero, BelowOne, Positive
from fl.streams import Streams

START = -1  # the source of a task that begins with the round's first model


@dataclass(frozen=True, kw_only=True)
class FaultConfig:
    """How clients fail and how the mediators deal with it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tolerance: Annotated[
        bool, Field(description="whether mediators go on without late or silent clients (GANDALF, Algorithm 2)")
    ] = True
    dropout: Annotated[
        BelowOne, Field(description="share of requests that take longer than `timeout`; 0 means no delays")
    ] = 0.0
    crash: Annotated[
        BelowOne, Field(description="probability that a client goes down in a request or while it waits")
    ] = 0.0
    timeout: Annotated[Positive, Field(description="T_R: longest wait for a result, in simulated time")] = 1.0
    patience: Annotated[Positive, Field(description="with tolerance the wait is patience * timeout")] = 0.25
    heartbeat: Annotated[
        Amount,
        Field(
            description="T_HB: silence after which a client counts as down, in simulated time; 0 is a third of "
            "the wait"
        ),
    ] = 0.0
    gap: Annotated[AtLeastZero, Field(description="requests to others between two to the same client")] = 1
    requests: Annotated[AtLeastOne, Field(description="most requests for one task, with tolerance")] = 3

    @property
    def wait(self) -> float:
        """How long the mediator waits for a result."""
        return self.timeout * self.patience if self.tolerance else self.timeout

    @property
    def silence(self) -> float:
        return self.heartbeat or self.wait / 3


class Faults(Protocol):
    """What goes wrong in one relay."""

    def delay(self, client: int, request: int) -> float:
        """Simulated time of a client's task."""

    def silent_after(self, client: int, request: int) -> float | None:
        """When in the task the client goes down, as a share of it; None: not at all."""

    def answers(self, client: int, step: int) -> bool:
        """Whether a client still holds and hands on what it finished."""


@dataclass(frozen=True)
class RandomFaults:
    """Faults drawn from streams of their own, by round and client; a lost reply is one of them."""

    config: FaultConfig
    streams: Streams
    round: int
    lost: frozenset[int] = frozenset()  # clients that train and are never heard

    def delay(self, client: int, request: int) -> float:
        if not self.config.dropout:
            return 0.0
        mean = self.config.timeout / log(1 / self.config.dropout)
        rng = self.streams.numpy("relay_delay", self.round, client, request)
        return float(rng.exponential(mean))

    def silent_after(self, client: int, request: int) -> float | None:
        if client in self.lost:
            return 1.0
        rng = self.streams.numpy("relay_crash", self.round, client, request)
        return float(rng.random()) if rng.random() < self.config.crash else None

    def answers(self, client: int, step: int) -> bool:
        rng = self.streams.numpy("relay_holder", self.round, client, step)
        return bool(rng.random() >= self.config.crash)


@dataclass(frozen=True)
class Task:
    """One request: who was selected, with whose result (a task's number, or START), and how it ended."""

    client: int
    source: int
    done: bool
    attempt: int  # requests to this client before


@dataclass
class Relay:
    """A planned round of one mediator."""

    tasks: list[Task] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)  # numbers of the tasks behind the result
    events: list[dict[str, Any]] = field(default_factory=list)
    time: float = 0.0

    @property
    def contributors(self) -> list[int]:
        """Clients whose work is in the result, each once, ascending."""
        return sorted({self.tasks[i].client for i in self.chain})

    def tasks_of(self, client: int) -> int:
        """How often a client's work is in the result."""
        return sum(self.tasks[i].client == client for i in self.chain)


def plan(
    members: Sequence[int], completed: Mapping[int, int], config: FaultConfig, faults: Faults, cap: int = 1
) -> Relay:
    """The round of a mediator with these available `members`, each to work `cap` times.

    `completed` counts tasks of earlier rounds.
    """
    relay, selected, last = Relay(), dict.fromkeys(members, 0), dict[int, int]()
    down: set[int] = set()
    tries = config.requests if config.tolerance else 1
    handed_on = True  # the newest holder has just finished, so it passes its result on itself

    def note(event: str, client: int, **more: int) -> None:
        relay.events.append({"time": round(relay.time, 6), "event": event, "client": client} | more)

    def holder(step: int, by: int) -> int:
        """The task whose result goes to client `by`; results that are lost leave the chain."""
        while relay.chain and not handed_on:
            own = relay.tasks[relay.chain[-1]].client
            if own not in down and (own == by or faults.answers(own, step)):
                note("rollback", own, to=by)
                return relay.chain[-1]
            note("holder_down", own)
            down.add(own)
            relay.chain.pop()
        if not relay.chain:
            if not handed_on:
                note("restart", by)
            return START
        return relay.chain[-1]

    while True:
        able = [k for k in members if k not in down and relay.tasks_of(k) < cap and selected[k] < cap * tries]
        step = len(relay.tasks)
        if config.tolerance:
            rested = [k for k in able if k not in last or step - last[k] > config.gap]
            able = sorted(rested or able, key=lambda k: (completed.get(k, 0) + relay.tasks_of(k), k))
        else:
            able = sorted(able, key=lambda k: (selected[k], members.index(k)))
        if not able:
            break
        k = able[0]
        source = holder(step, k)
        took, crash = faults.delay(k, selected[k]), faults.silent_after(k, selected[k])
        attempt, selected[k], last[k] = selected[k], selected[k] + 1, step
        heard = crash is None and took <= config.wait
        relay.tasks.append(Task(k, source, heard, attempt))
        handed_on = heard
        if heard:
            relay.time += took
            relay.chain.append(step)
            continue
        stopped = float("inf") if crash is None else crash * took + config.silence
        quiet = config.tolerance and stopped < config.wait
        relay.time += stopped if quiet else config.wait
        note("silent" if quiet else "late", k)
        if crash is not None:
            down.add(k)
    while relay.chain and not handed_on:  # somebody must still hold the result to send it
        own = relay.tasks[relay.chain[-1]].client
        if own not in down and faults.answers(own, len(relay.tasks)):
            note("rollback", own)
            break
        note("holder_down", own)
        down.add(own)
        relay.chain.pop()
    return relay
