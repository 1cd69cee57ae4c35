"""How clients fail, as data, for every method: late, failing for once, or down, and whether anybody notices.

GANDALF, sec. 3.4, names the three and gives no distribution. In every request to a client

    late      its delay, exponential, exceeds the timeout in a share `delay` of the requests
    failed    with probability `transient` the request comes to nothing; the client can be asked again
    down      with probability `crash` the client goes down, until the round ends
    unheard   with probability `reply_loss` it trains, and its reply is lost; nobody asks again

With heartbeats it is noticed after a silence who has failed or is down, without them when the timeout is over.
A server that asks its clients all at once (every method but relays, whose mediators have rules of their own in
fl/families/relay.py) asks those again, `again` times; asking again changes no first request, so it never costs
anybody's answer. Delays come on top of what the work itself takes. Who fails in a round sends nothing and keeps
what it remembered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import Field

from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, BelowOne, Positive, Share
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from fedaudit.fl.runtime.streams import Streams


@settings
class FailureConfig:
    """How clients fail, and how a server that asks them all at once deals with it."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    delay: BelowOne = Field(
        default=0.0, description="share of requests that take longer than `timeout`; 0 means no delays"
    )
    transient: BelowOne = Field(
        default=0.0, description="probability that a request comes to nothing, and may be repeated"
    )
    crash: BelowOne = Field(
        default=0.0, description="probability that a client goes down in a request or while it waits"
    )
    heartbeats: bool = Field(
        default=True, description="whether it is noticed by heartbeats that a client has failed"
    )
    heartbeat: Amount = Field(
        default=0.0,
        description="T_HB: silence after which a client counts as down, in simulated time; 0 is a third of "
        "the wait",
    )
    timeout: Positive = Field(default=1.0, description="T_R: longest delay that is waited for, in simulated time")
    reply_loss: Share = Field(default=0.0, description="probability that a trained reply is lost")
    again: AtLeastZero = Field(
        default=0, description="times that a client which failed is asked again in a round; not in relays"
    )

    @property
    def any(self) -> bool:
        """Whether anything fails."""
        return bool(self.delay or self.transient or self.crash)

    def silence(self, wait: float) -> float:
        """After how long a silent client is noticed by somebody who would wait so long."""
        return self.heartbeat or wait / 3


class Faults(Protocol):
    """What goes wrong in one round."""

    def delay(self, client: int, request: int) -> float:
        """Simulated time that a request takes, beyond the work."""

    def silent_after(self, client: int, request: int) -> float | None:
        """When in the task the client goes down, as a share of it; None: not at all."""

    def fails(self, client: int, request: int) -> bool:
        """Whether a request comes to nothing for once."""

    def answers(self, client: int, step: int) -> bool:
        """Whether a client of a relay still holds and hands on what it has."""


@dataclass(frozen=True)
class RandomFaults:
    """Faults drawn from streams of their own, by round and client, named for relays, which had them first."""

    config: FailureConfig
    streams: "Streams"
    round: int
    lost: frozenset[int] = frozenset()  # clients that train and are never heard

    def delay(self, client: int, request: int) -> float:
        if not self.config.delay:
            return 0.0
        mean = self.config.timeout / log(1 / self.config.delay)
        rng = self.streams.numpy("relay_delay", self.round, client, request)
        return float(rng.exponential(mean))

    def silent_after(self, client: int, request: int) -> float | None:
        if client in self.lost:
            return 1.0
        # a client's fate in a round: to be asked more often puts nobody at risk
        rng = self.streams.numpy("relay_crash", self.round, client, 0)
        return float(rng.random()) if rng.random() < self.config.crash else None

    def fails(self, client: int, request: int) -> bool:
        if not self.config.transient:
            return False
        rng = self.streams.numpy("relay_transient", self.round, client, request)
        return bool(rng.random() < self.config.transient)

    def answers(self, client: int, step: int) -> bool:
        rng = self.streams.numpy("relay_holder", self.round, client, step)
        return bool(rng.random() >= self.config.crash)


@dataclass(frozen=True)
class Turn:
    """A client's part in a round: whether it is heard, and when, beyond its work; or when it is given up."""

    heard: bool = True
    time: float = 0.0
    requests: int = 1
    events: tuple[Mapping[str, Any], ...] = ()


def turn(client: int, config: FailureConfig, faults: Faults) -> Turn:
    """The requests to one client, one after the other, until it is heard or nobody asks any more."""
    now, down, events = 0.0, False, list[Mapping[str, Any]]()
    for request in range(1 + config.again):
        took, crash = faults.delay(client, request), faults.silent_after(client, request)
        silent = down or crash is not None or faults.fails(client, request)
        if not silent and took <= config.timeout:
            return Turn(True, now + took, request + 1, tuple(events))
        noticed = silent and config.heartbeats
        stopped = (0.0 if crash is None or down else crash * min(took, config.timeout)) + config.silence(
            config.timeout
        )
        now += min(config.timeout, stopped) if noticed else config.timeout
        down = down or crash is not None
        name = ("silent" if down else "failed") if noticed else "late"
        events.append({"time": round(now, 6), "event": name, "client": client})
        if down and noticed:  # it will not answer in this round, and that is known
            break
    return Turn(False, now, len(events), tuple(events))
