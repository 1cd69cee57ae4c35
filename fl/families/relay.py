"""A relay on the simulated clock: one mediator's round, with clients that are late, silent or gone.

GANDALF, sec. 3.4 and Algorithm 2; the paper leaves open what stands here as a setting. A mediator
passes a model along its clients. With tolerance

    next      of the clients that may still work, the one with the fewest completed tasks, then the
              lowest number; between two requests to a client lie `gap` requests to others, if any can
    late      no result after patience * timeout: the mediator goes on without; a late result is ignored
    silent    no heartbeat for `heartbeat`: the client counts as down until the round ends
    failed    a client that fails for once is silent as well, and can be asked again; it keeps its weights
    rollback  the newest result is handed on by whoever has it: the client that made it, or one that was
              given it to go on from; if all of them are down, the result before, that work being lost; if
              nobody is left, the round starts from its first model
    patient   who did not answer in `requests` tries is asked once more and waited for the whole timeout,
              as without tolerance: going on early must not cost anybody's work

and without it the order is fixed, every failure costs the whole timeout, and only its maker has a result.
Delays do not depend on training, so a round is planned before anything is trained. How clients fail is the
federation's (fl/clients/failures.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field

from fedaudit.fl.clients.failures import FailureConfig, Faults
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Positive
from fedaudit.fl.runtime.settings import settings

START = -1  # the source of a task that begins with the round's first model


@settings
class ToleranceConfig:
    """How mediators deal with clients that fail, which `federation.failures` says."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    tolerance: bool = Field(
        default=True, description="whether mediators go on without late or silent clients (GANDALF, Algorithm 2)"
    )
    patience: Positive = Field(default=0.25, description="with tolerance the wait is patience * timeout")
    gap: AtLeastZero = Field(default=1, description="requests to others between two to the same client")
    requests: AtLeastOne = Field(
        default=3, description="most requests for one task before the patient one, with tolerance"
    )

    def wait(self, timeout: float) -> float:
        """How long a mediator waits for a result."""
        return timeout * self.patience if self.tolerance else timeout


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
    _behind: Counter[int] = field(default_factory=Counter)  # client -> its tasks in the chain
    events: list[dict[str, Any]] = field(default_factory=list)
    time: float = 0.0

    @property
    def contributors(self) -> list[int]:
        """Clients whose work is in the result, each once, ascending."""
        return sorted({self.tasks[i].client for i in self.chain})

    def extend(self, number: int) -> None:
        """Put the newest result behind that of the round."""
        self.chain.append(number)
        self._behind[self.tasks[number].client] += 1

    def shorten(self) -> None:
        """Lose the result of the last task of the chain."""
        self._behind[self.tasks[self.chain.pop()].client] -= 1

    def tasks_of(self, client: int) -> int:
        """How often a client's work is in the result."""
        return self._behind[client]


def plan(
    members: Sequence[int],
    completed: Mapping[int, int],
    config: ToleranceConfig,
    failures: FailureConfig,
    faults: Faults,
    cap: int = 1,
) -> Relay:
    """The round of a mediator with these available `members`, each to work `cap` times.

    `completed` counts tasks of earlier rounds.
    """
    relay, selected, last = Relay(), dict.fromkeys(members, 0), dict[int, int]()
    place = {k: i for i, k in enumerate(members)}
    gone: set[int] = set()  # who is down,
    down: set[int] = set()  # and of whom that is known
    tries = config.requests + 1 if config.tolerance else 1
    handed_on = True  # the newest holder has just finished, so it passes its result on itself

    def note(event: str, client: int, **more: int) -> None:
        relay.events.append({"time": round(relay.time, 6), "event": event, "client": client} | more)

    def holders(number: int) -> list[int]:
        """Who has the result of a task: its maker, and with tolerance whoever was given it."""
        given = [t.client for t in relay.tasks if t.source == number] if config.tolerance else []
        return list(dict.fromkeys([relay.tasks[number].client, *given]))

    def holder(by: int | None) -> int:
        """The task whose result goes to client `by`, or the mediator; results that are lost leave the chain."""
        # a holder's fate is drawn once for each client that was asked, however often that one was
        step = sum(min(n, cap) for n in selected.values())
        while relay.chain and not handed_on:
            number = relay.chain[-1]
            able = [k for k in holders(number) if k not in down]
            for own in sorted(able, key=lambda k: k != by):  # who has it already needs nobody
                if own not in gone and (own == by or faults.answers(own, step)):
                    note("rollback", own, **({} if by is None else {"to": by}))
                    return number
                if own == relay.tasks[number].client and own not in down:
                    note("holder_down", own)
                    down.add(own)
                    gone.add(own)
            relay.shorten()
        if not relay.chain and not handed_on and by is not None:
            note("restart", by)
        return relay.chain[-1] if relay.chain else START

    while True:
        able = [k for k in members if k not in down and relay.tasks_of(k) < cap and selected[k] < cap * tries]
        step = len(relay.tasks)
        if config.tolerance:
            hasty = [k for k in able if selected[k] < cap * config.requests]  # patience comes last
            rested = [k for k in hasty if k not in last or step - last[k] > config.gap]
            able = sorted(rested or hasty or able, key=lambda k: (completed.get(k, 0) + relay.tasks_of(k), k))
        else:
            able = sorted(able, key=lambda k: (selected[k], place[k]))
        if not able:
            break
        k = able[0]
        source = holder(k)
        patient = config.tolerance and selected[k] >= cap * config.requests
        wait = failures.timeout if patient else config.wait(failures.timeout)
        # who is waited for patiently is as slow as it was at first, and does not fail if it did not then
        took = faults.delay(k, 0 if patient else selected[k])
        failed = faults.fails(k, selected[k]) and (not patient or faults.fails(k, 0))
        crash = faults.silent_after(k, selected[k])
        attempt, selected[k], last[k] = selected[k], selected[k] + 1, step
        heard = crash is None and not failed and took <= wait and k not in gone
        # the mediator keeps what it asks somebody again with: a second failure puts no holder at risk
        handed_on = heard or (handed_on and attempt > 0)
        relay.tasks.append(Task(k, source, heard, attempt))
        if heard:
            relay.time += took
            relay.extend(step)
            continue
        stopped = float("inf")
        if config.tolerance and failures.heartbeats and (failed or crash is not None or k in gone):
            stopped = (0.0 if crash is None else crash * took) + failures.silence(config.wait(failures.timeout))
        quiet = stopped < wait
        relay.time += stopped if quiet else wait
        note(("failed" if failed and crash is None and k not in gone else "silent") if quiet else "late", k)
        if crash is not None:
            gone.add(k)
        if k in gone and (quiet or not config.tolerance or failures.heartbeats):
            down.add(k)
    holder(None)  # somebody must still hold the result to send it
    return relay
